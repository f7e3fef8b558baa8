"""One half of a run: the kills on one of the two nodes, one after the other."""

import asyncio
import random
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.model.cpuset import format_cpuset
from lab.chaos.churn import Churn, Pods, refresh, repeated, sandboxed
from lab.chaos.kills import WAYS, Missed, Scene
from lab.chaos.kubelet import Pod, best_effort, burstable, guaranteed, replica
from lab.chaos.nodes import Node
from lab.chaos.phases import Kill, Phase, Tally
from lab.chaos.watcher import Watcher

_WORKERS = {"containerd": 2, "embedded": 4, "plugin": 2}
_PODS = {"containerd": 6, "embedded": 14, "plugin": 6}
_CYCLE_S = 300.0
"""A cycle that takes longer is stuck, and ends the half."""
_SHRINKS = {Phase.SHRINK_SENT, Phase.START_HELD, Phase.RELEASE}


class Half:
    """Runs a plan on a node."""

    def __init__(self, node: Node, plan: list[Kill], tally: Tally, told: Callable[[Tally, Kill], None]) -> None:
        self._node, self._plan, self._tally, self._told = node, plan, tally, told
        self._journal = node.journal
        self._pods = Pods(node, self._journal, _PODS[node.runtime])
        self._sentinel = best_effort()
        self._at: dict[str, Any] = {}

    async def run(self, rest_limit_s: float, *, stop_at_violation: bool = False) -> None:
        """All kills; what ends it before the last one is in the tally, as far as it came.

        Args:
            rest_limit_s: within this time after the last call everything must be as it should: two lists after a
                create of unknown outcome, and repairs.
            stop_at_violation: leave out the rest of the plan.
        """
        self._rest_limit_s = rest_limit_s
        with self._telling():
            async with self._node.running(), Watcher(self._node) as watcher:
                with self._telling():
                    await self._cycles(watcher, stop_at_violation=stop_at_violation)
                await self._pods.close()
                await watcher.finish()
                self._found(watcher.violations)
                self._tally.checker = watcher.report
                if failures := self._node.failures():
                    self._found([f"criproxy failed {len(failures)} times, first: {failures[0]}"])

    async def _cycles(self, watcher: Watcher, *, stop_at_violation: bool) -> None:
        self._victim = self._pods.kubelet("victim")
        self._workers = [self._pods.kubelet(f"worker-{n}") for n in range(_WORKERS[self._node.runtime])]
        await self._bring_sentinel()
        for kill in self._plan:
            self._at = {"kill": kill.number, "phase": kill.phase.value}
            async with asyncio.timeout(_CYCLE_S):
                await self._cycle(kill, watcher)
            self._told(self._tally, kill)
            if stop_at_violation and self._tally.violations:
                break

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Go on behind an error, whatever it is, and tell it: the other half and the report do not depend on it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self._tally.broken.append({**self._at, "error": "".join(traceback.format_exception(error))})

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
        owns = kill.phase in _SHRINKS or kill.variant % 10 >= 3
        pod = guaranteed(1000 * chance.randint(1, min(self._node.assignable, 6))) if owns else burstable()
        await self._pods.make_room(self._victim, pod.owns, chance)
        if kill.calm:
            async with self._busy(chance):
                await self._disturb(kill, chance)
            await self._rest(watcher)  # before our kubelet finds out what became of calls without an answer
            await self._pods.tidy(self._victim, chance)
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
        await self._rest(watcher)

    async def _bring_guest(self) -> None:
        """A pod that comes and goes: who is taken in after a lost database stays put until the next placement."""
        guest = best_effort()
        self._pods.living.append(guest)
        await repeated(self._victim, lambda: self._run(guest))
        await self._pods.remove(self._victim, guest)

    async def _run(self, pod: Pod) -> None:
        await sandboxed(self._victim, pod)
        member = pod.members[0]
        if not member.id or member.state == api.CONTAINER_EXITED:  # its start was refused
            member.attempt += bool(member.id)
            await self._victim.create(pod, member)
        if not pod.running:
            await self._victim.start(pod, pod.members[0])

    @asynccontextmanager
    async def _busy(self, chance: random.Random) -> AsyncIterator[None]:
        """Within it, the workers do what they want to; behind it they have finished."""
        quiet = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for kubelet in self._workers:
                churn = Churn(self._pods, kubelet, random.Random(chance.random()))
                group.create_task(churn.work(quiet))
            try:
                yield
            finally:
                quiet.set()

    async def _disturb(self, kill: Kill, chance: random.Random) -> None:
        """Some time of churn, in which connections break and others write cpusets."""
        await asyncio.sleep(chance.uniform(0.05, 0.25))
        if kill.cut:
            self._node.relay.cut()
            await asyncio.sleep(chance.uniform(0.0, 0.1))
            await self._node.cut_plugin()
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
                linux = api.LinuxContainerResources(cpuset_cpus=format_cpuset(cpus))
                await self._node.direct.update_container_resources(member.id, linux)
            elif group := self._node.group(member.id):
                (group / "cpuset.cpus").write_text(f"{format_cpuset(cpus)}\n")
        except (RuntimeCallError, OSError):
            return  # it has ended meanwhile

    async def _kill(self, scene: Scene) -> None:
        """Bring criproxy into the phase and kill it; if it cannot be brought there, kill it anyway."""
        phase = scene.kill.phase.value
        self._pods.living.append(scene.pod)
        scene.pod.busy = True
        for tries in range(self._node.tries):
            try:
                async with WAYS[scene.kill.phase](scene):
                    await self._node.kill()
                self._tally.phases[phase] = self._tally.phases.get(phase, 0) + 1
                break
            except (Missed, RuntimeCallError, TimeoutError) as error:
                if tries < self._node.tries - 1:
                    await asyncio.sleep(self._node.pause_s)
                    await self._anew(scene, is_full="RESOURCE_EXHAUSTED" in str(error))
                    continue
                self._tally.missed.append(f"{scene.kill.number} {phase}: {error!r}")
                await self._node.kill()
        self._tally.kills += 1

    async def _anew(self, scene: Scene, *, is_full: bool) -> None:
        """Another pod of the same kind in place of the one that did not bring criproxy there, and room for it."""
        await scene.ended()
        await self._victim.end_left()  # it may be that which was in the way
        freed, idle = 0, sorted((pod for pod in self._pods.living if not pod.busy), key=lambda pod: -pod.owns)
        for pod in idle if is_full else ():  # CPUs are exclusive to it, or kept for it
            if not pod.busy and freed < scene.pod.owns:
                pod.busy = True  # for the others: it goes
                freed += pod.owns
                await self._pods.remove(self._victim, pod)
        await self._pods.remove(self._victim, scene.pod)
        scene.pod = replica(scene.pod)
        self._pods.living.append(scene.pod)
        scene.pod.busy = True

    async def _revive(self, kill: Kill, chance: random.Random) -> None:
        """Start criproxy again; the runtime may restart, before or after it."""
        node = self._node
        await asyncio.sleep(kill.pause_ms / 1000)
        if kill.lost:
            node.journal.forgets()
            for file in node.store.parent.glob("criproxy.db*"):
                file.unlink()
        late = chance.random() < 0.5
        if kill.restart and not late:
            await node.restart_runtime()
        if kill.early_ms is not None:
            await node.serve.spawn()
            await asyncio.sleep(kill.early_ms / 1000)
            await node.kill()
            node.serve.forget()
        await node.serve.spawn()
        await node.serve.message("READY=1")
        await node.placing()
        node.back()
        if kill.restart and late:
            await node.restart_runtime()

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
            await repeated(self._victim, lambda: self._start(pod))

    async def _start(self, pod: Pod) -> None:
        """Start its container, unless an earlier try did, or was cut and left it exited: tidying sees to that."""
        await refresh(self._victim, pod)
        if pod.members[0].state == api.CONTAINER_CREATED:
            await self._victim.start(pod, pod.members[0])
        elif not pod.running:
            pod.doubtful = True

    async def _again(self, pod: Pod, after: int) -> None:
        """Create it again: the very same, or the next attempt."""
        member = pod.members[0]
        member.attempt += after % 4 == 1
        await self._victim.create(pod, member)
        if after % 4 < 3:
            await self._victim.start(pod, member)

    async def _rest(self, watcher: Watcher) -> None:
        await self._victim.end_left()  # it keeps its place as long as it runs, and no pod has a use for it
        answer = await watcher.rest(self._rest_limit_s)
        self._tally.rest_s.append(answer["after_s"])
        self._found([*watcher.violations, *answer["problems"]])
        watcher.violations.clear()

    def _found(self, violations: list[str]) -> None:
        self._tally.violations += [{**self._at, "what": sentence} for sentence in violations]
