"""One half of a run: the kills on one of the two nodes, one after the other."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from tests.chaos.churn import Churn, Pods, refresh, repeated
from tests.chaos.kills import WAYS, Missed, Scene
from tests.chaos.kubelet import Journal, Pod, best_effort, burstable, guaranteed, replica
from tests.chaos.nodes import Node
from tests.chaos.phases import Kill, Phase
from tests.chaos.watcher import Watcher

_WORKERS = {"containerd": 2, "embedded": 4}
_PODS = {"containerd": 6, "embedded": 14}
_CYCLE_LIMIT_S = 300.0
"""A cycle that takes longer is stuck: the run ends with what it waits for."""
_TRIES = 4
"""How often it is tried to bring criproxy into a phase: whether a start has to wait depends on the churn, too."""
_SHRINKS = {Phase.SHRINK_SENT, Phase.START_HELD, Phase.RELEASE}


@dataclass(slots=True)
class Tally:
    """What became of the kills on one node."""

    runtime: str
    kills: int = 0
    phases: dict[str, int] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    """Cycles in which the phase was not reached; criproxy was killed all the same."""
    violations: list[dict[str, Any]] = field(default_factory=list)
    rest_s: list[float] = field(default_factory=list)
    """Seconds from the last call until all was as it must be."""
    away_s: list[float] = field(default_factory=list)
    """Seconds from SIGKILL until criproxy was ready again."""
    done: dict[str, int] = field(default_factory=dict)
    checker: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


class Half:
    """Runs a plan on a node."""

    def __init__(self, node: Node, plan: list[Kill], tally: Tally, told: Callable[[Tally, Kill], None]) -> None:
        self._node, self._plan, self._tally, self._told = node, plan, tally, told
        self._journal = Journal(node.journal)
        self._pods = Pods(node, self._journal, _PODS[node.runtime])
        self._sentinel = best_effort()

    async def run(self, rest_limit_s: float, *, stop_at_violation: bool = False) -> None:
        """All kills; raises what is not criproxy's fault.

        Args:
            rest_limit_s: within this time after the last call everything must be as it should: two lists after a
                create of unknown outcome, and repairs.
            stop_at_violation: leave out the rest of the plan.
        """
        self._rest_limit_s = rest_limit_s
        began = time.monotonic()
        async with self._node.running(), Watcher(self._node) as watcher:
            self._victim = self._pods.kubelet("victim")
            self._workers = [self._pods.kubelet(f"worker-{n}") for n in range(_WORKERS[self._node.runtime])]
            await self._bring_sentinel()
            try:
                for kill in self._plan:
                    async with asyncio.timeout(_CYCLE_LIMIT_S):
                        await self._cycle(kill, watcher)
                    self._told(self._tally, kill)
                    if stop_at_violation and self._tally.violations:
                        break
                await watcher.finish()
            finally:
                await self._pods.close()
                self._tally.checker = watcher.report
                self._tally.done["refusals"] = sum(kubelet.refused for kubelet in self._pods.kubelets)
                self._tally.done["left running"] = sum(kubelet.left_running for kubelet in self._pods.kubelets)
                self._tally.seconds = round(time.monotonic() - began, 1)

    async def _bring_sentinel(self) -> None:
        """A pod that shares, from the beginning to the end: at rest it shows what is withheld.

        It is born beside an owner that leaves at once: where it was created is not where it is.
        """
        first = guaranteed(1000)
        for pod in (first, self._sentinel):
            await self._victim.sandbox(pod)
            await self._victim.create(pod, pod.members[0])
            await self._victim.start(pod, pod.members[0])
        await self._victim.remove_pod(first)

    async def _cycle(self, kill: Kill, watcher: Watcher) -> None:
        chance = random.Random(kill.seed)
        pod = self._victims_pod(kill, chance)
        await self._pods.make_room(self._victim, pod.owns, chance)
        if kill.calm:
            await self._rest_alive(kill, chance, watcher)
        scene = Scene(self._node, self._victim, kill, pod)
        async with self._busy(chance):
            await self._disturb(kill, chance)
            await self._kill(scene)
            await self._revive(kill, chance)
            await scene.ended()
        await self._settle(scene)
        await self._pods.tidy(self._victim, chance)
        if kill.lost:
            await self._bring_guest()
        await self._rest(kill, watcher)

    async def _bring_guest(self) -> None:
        """A pod that comes and goes: who is taken in after a lost database stays put until the next placement."""
        guest = best_effort()
        self._pods.living.append(guest)
        await repeated(self._victim, lambda: self._run(guest))
        await self._pods.remove(self._victim, guest)

    async def _run(self, pod: Pod) -> None:
        if pod.doubtful:
            await refresh(self._victim, pod)
        if not pod.sandbox:
            await self._victim.sandbox(pod)
        if not pod.members[0].id:
            await self._victim.create(pod, pod.members[0])
        if not pod.running:
            await self._victim.start(pod, pod.members[0])

    async def _rest_alive(self, kill: Kill, chance: random.Random, watcher: Watcher) -> None:
        """Some churn, and then a rest before our kubelet finds out what became of calls without an answer."""
        async with self._busy(chance):
            await self._disturb(kill, chance)
        await self._rest(kill, watcher)
        await self._pods.tidy(self._victim, chance)
        self._count("rests without a kill")

    @asynccontextmanager
    async def _busy(self, chance: random.Random) -> AsyncIterator[None]:
        """Within it, the workers do what they want to; behind it they have finished."""
        quiet = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for kubelet in self._workers:
                churn = Churn(self._pods, kubelet, random.Random(chance.random()), self._tally.done)
                group.create_task(churn.work(quiet))
            try:
                yield
            finally:
                quiet.set()

    def _victims_pod(self, kill: Kill, chance: random.Random) -> Pod:
        if kill.phase not in _SHRINKS and kill.variant % 10 < 3:
            return burstable()
        return guaranteed(1000 * chance.randint(1, min(self._node.assignable, 6)))

    async def _disturb(self, kill: Kill, chance: random.Random) -> None:
        """Some time of churn, in which connections break and others write cpusets."""
        await asyncio.sleep(chance.uniform(0.05, 0.25))
        if kill.cut:
            self._node.relay.cut()
            self._count("cut connections")
            await asyncio.sleep(chance.uniform(0.0, 0.1))
        if kill.foreign:
            await self._write_foreign(chance)

    async def _write_foreign(self, chance: random.Random) -> None:
        """Somebody moves a container: through the runtime, or by writing its cgroup."""
        members = [member for pod in [self._sentinel, *self._pods.living] for member in pod.running]
        member = chance.choice(members)
        cpus = frozenset(chance.sample(sorted(self._node.cpus), chance.randint(1, len(self._node.cpus))))
        self._journal.disturbs(member.id)
        try:
            if chance.random() < 0.5:
                await self._node.repin(member.id, cpus)
            elif group := self._node.group(member.id):
                (group / "cpuset.cpus").write_text(f"{','.join(map(str, sorted(cpus)))}\n")
        except (RuntimeCallError, OSError):
            return  # it has ended meanwhile
        self._count("foreign cpusets")

    async def _kill(self, scene: Scene) -> None:
        """Bring criproxy into the phase and kill it; if it cannot be brought there, kill it anyway."""
        phase = scene.kill.phase.value
        self._pods.living.append(scene.pod)
        scene.pod.busy = True
        for tries in range(_TRIES):
            try:
                async with WAYS[scene.kill.phase](scene):
                    await self._node.kill()
                self._tally.phases[phase] = self._tally.phases.get(phase, 0) + 1
                break
            except (Missed, RuntimeCallError, TimeoutError) as error:
                if tries < _TRIES - 1:
                    await self._anew(scene)
                    continue
                self._tally.missed.append(f"{scene.kill.number} {phase}: {error!r}")
                await self._node.kill()
        self._tally.kills += 1

    async def _anew(self, scene: Scene) -> None:
        """Another pod of the same kind in place of the one that did not bring criproxy there."""
        await scene.ended()
        await self._pods.remove(self._victim, scene.pod)
        scene.pod = replica(scene.pod)
        self._pods.living.append(scene.pod)
        scene.pod.busy = True

    async def _revive(self, kill: Kill, chance: random.Random) -> None:
        """Start criproxy again; the runtime may restart, before or after it."""
        node, began = self._node, time.monotonic()
        await asyncio.sleep(kill.pause_ms / 1000)
        if kill.lost:
            node.lose_store()
            self._count("lost databases")
        late = chance.random() < 0.5
        if kill.restart and not late:
            await node.restart_runtime()
        await node.revive()
        self._tally.away_s.append(round(time.monotonic() - began, 3))
        if kill.restart and late:
            await node.restart_runtime()
        if kill.restart:
            self._count("restarts of the runtime")

    async def _settle(self, scene: Scene) -> None:
        """Our kubelet goes on with the pod at which criproxy died: as it would, or otherwise."""
        pod, after = scene.pod, scene.kill.after
        pod.busy = False
        if scene.kill.phase is Phase.RELEASE:
            await self._pods.remove(self._victim, pod)
            return
        if after % 4 == 0 or not pod.sandbox:
            await self._pods.remove(self._victim, pod)
        elif not pod.members[0].id:
            pod.doubtful = True
            try:
                await self._again(pod, after)
            except RuntimeCallError:
                return  # "name … is reserved", most likely; tidying finds what there is
        elif after % 4 < 3 and pod.members[0].state != api.CONTAINER_RUNNING:
            await repeated(self._victim, lambda: self._victim.start(pod, pod.members[0]))

    async def _again(self, pod: Pod, after: int) -> None:
        """Create it again: the very same, or the next attempt."""
        member = pod.members[0]
        member.attempt += after % 4 == 1
        self._count("retries of a create")
        await self._victim.create(pod, member)
        if after % 4 < 3:
            await self._victim.start(pod, member)

    async def _rest(self, kill: Kill, watcher: Watcher) -> None:
        answer = await watcher.rest(self._rest_limit_s)
        self._tally.rest_s.append(answer["after_s"])
        for sentence in [*watcher.violations, *answer["problems"]]:
            self._tally.violations.append({"kill": kill.number, "phase": kill.phase.value, "what": sentence})
        watcher.violations.clear()

    def _count(self, what: str) -> None:
        self._tally.done[what] = self._tally.done.get(what, 0) + 1
