"""One life of a node, from its script: does what happens, waits until the kubelet knows, and judges."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.control.world import RecordingLog
from tests.rigs.lives import configurations
from tests.rigs.lives.configurations import Files
from tests.rigs.lives.expected import ANY, GOOD, NOTICED_S, Memory, differs, expected
from tests.rigs.lives.machine import NVIDIA, Machine
from tests.rigs.lives.node import KUBELET, PARTS, PLUGIN, Node, parts, until
from tests.rigs.lives.pods import Wish
from tests.rigs.lives.script import Event, Script
from tests.rigs.lives.workloads import Workloads

GIVEN_UP_S = 15.0
"""After so long what should be will never be."""

UNSEEN_S = 0.7
"""So long the device plugin may need to notice what makes no difference to the kubelet at the moment."""


@dataclass(slots=True)
class Tally:
    """What lives had."""

    events: Counter[str] = field(default_factory=Counter)
    settled_s: dict[str, list[float]] = field(default_factory=dict)
    """How long the kubelet did not know, by what had happened alone."""
    counts: Counter[str] = field(default_factory=Counter)


class Wrong(AssertionError):
    """Something that must always be true is not."""

    def __init__(self, sentence: str, step: int) -> None:
        super().__init__(sentence)
        self.step = step
        """After how many steps."""


class Life:
    """One node from its first start to its last end.

    Args:
        script: what happens.
        folder: its path has to be short.
        tally: gets the counts.
    """

    def __init__(self, script: Script, folder: Path, tally: Tally) -> None:
        self.script = script
        self.tally = tally
        self.machine = Machine(folder, has_mig=script.has_mig)
        self.policy = self.machine.host.root / "policy.yaml"
        self.node = Node(self.machine, self.policy)
        self.workloads = Workloads(self.node, self.machine)
        self.memory = Memory()
        self.written: Files | None = script.files
        """What the file says; None: nothing that can be used."""
        self.files = script.files
        """What is in force."""
        self.log: RecordingLog = self.node.log
        self._loop = asyncio.get_running_loop()
        self._clock = Stalls()
        self._step = 0

    async def live(self) -> None:
        """All of it.

        Raises:
            Wrong: something was wrong.
        """
        with parts(self.machine, self.log):
            self._clock.start()
            try:
                await self._begin()
                for step in self.script.steps:
                    self._step += 1
                    await self._do(step)
                self._step += 1
                await self._end()
            finally:
                self._clock.stop()
                await self._close()

    async def _begin(self) -> None:
        for kind, number in self.script.cards:
            self.machine.add(kind, number)
        self.files.write(self.policy, self.machine)
        for part in ("runtime", "criproxy", KUBELET, PLUGIN):
            await self._start(part)
        await self._settle("begin")

    async def _do(self, step: tuple[Event, ...]) -> None:
        self.tally.events.update(event.kind for event in step)
        alone = len(step) == 1
        must = self._must_admit(step[0]) if alone and step[0].kind == "pod" else ""
        before = self.workloads.refused
        await asyncio.gather(*(self._happens(event) for event in step))
        if must and self.workloads.refused > before:
            raise self._wrong(f"{step[0].subject} was not admitted, though {must}")
        took_s = await self._settle(step[0].kind if alone else "several")
        if any(event.subject.startswith(("card ", "health", "files")) for event in step):
            await asyncio.sleep(max(UNSEEN_S - took_s, 0))
        await self.workloads.sync()
        await self._settle("pods")
        await self._judge()

    # ---------------------------------------------------------------- events

    async def _happens(self, event: Event) -> None:
        match event.kind, event.values:
            case "start", (str(part),):
                await self._start(part)
            case "stop", (str(part), bool(killed)):
                await self._stop(part, killed=killed)
            case "restart", (str(part), bool(killed)):
                await self._stop(part, killed=killed)
                await self._start(part)
            case "pod", (Wish() as wish, float(after_s)):
                await asyncio.sleep(after_s)
                await self.workloads.make(wish)
            case "end", (str(name),):
                self.workloads.end(name)
            case "crash", (str(name),):
                self.workloads.crash(name)
            case "files", (Files() as files,):
                self._write(files)
            case "spoil", (int(number),):
                configurations.spoil(self.policy, number)
                self.written = None
            case _:
                self._to_cards(event)

    def _to_cards(self, event: Event) -> None:
        machine, up = self.machine, self.node.up[PLUGIN]
        match event.kind, event.values:
            case "add", (str(kind), int(number)):
                machine.add(kind, number)
            case "remove", (str(kind), int(number)):
                machine.remove(kind, number)
            case "node lost", (int(number),):
                machine.lose_node(number)
            case "node back", (int(number),):
                machine.node_back(number)
            case "bad", (int(number),):
                machine.say(number, "is too hot")
            case "good", (int(number),):
                machine.say(number, "")
            case "command breaks" | "command works", ():
                machine.break_command(broken=event.kind == "command breaks")
            case "xid", (int(number),):
                if up and NVIDIA in self.files.kinds:
                    machine.xid(number)
                    self.memory.happened((NVIDIA, f"GPU-{number}"), self._loop.time())
        self._observe()

    def _write(self, files: Files) -> None:
        """Another file: in force at once, unless it names a card that is not there; then at the next start."""
        files.write(self.policy, self.machine)
        self.written = files
        if not self.node.up[PLUGIN] or not files.fits(self.machine):
            return
        self.files = files
        self._observe()

    async def _start(self, part: str) -> None:
        if part == PLUGIN:
            if self.written is None:  # it would end at once
                self._write(self.files)
            self.files = self.written or self.files
            self.memory = Memory()
        await self.node.start(part)
        self._observe()
        if part == KUBELET:
            async with self.workloads.admitting:
                await self.workloads.kubelet_is_back()

    async def _stop(self, part: str, *, killed: bool) -> None:
        if part == KUBELET:
            async with self.workloads.admitting:
                await self.node.stop(part, killed=killed)
        else:
            await self.node.stop(part, killed=killed)

    def _observe(self) -> None:
        if self.node.up[PLUGIN]:
            self.memory.observe(self.machine, self.files, self._loop.time())

    # ---------------------------------------------------------------- what has to be

    def _differs(self) -> str:
        """In which way the kubelet, or the device plugin without one, does not know what it has to; empty: in none."""
        if failed := self.node.failed():
            return failed
        node, now_s = self.node, self._loop.time()
        if not node.up[KUBELET]:
            return self._published_differs(now_s) if node.up[PLUGIN] else ""
        if not node.up[PLUGIN]:
            return differs({}, node.told())
        return differs(expected(self.machine, self.files, self.memory, node.in_use(), now_s), node.told())

    def _published_differs(self, now_s: float) -> str:
        """The same without a kubelet: of ids that are not offered any more it is not known whether they are in use."""
        should = expected(self.machine, self.files, self.memory, {}, now_s)
        told = self.node.published()
        for name, states in should.items():
            there = told.get(name, {})
            for one in states:
                taken = there.get(one) is False
                if taken and states[one] == GOOD:
                    states[one] = ANY  # a container may have its card in another way
        listed = {
            name: {one: good for one, good in there.items() if good or one in should.get(name, {})}
            for name, there in told.items()
        }
        return differs({name: states for name, states in should.items() if states}, listed)

    async def _settle(self, what: str) -> float:
        """Wait until the kubelet knows what has happened; how long it did not, in seconds."""
        begun_s, stalled_s = self._loop.time(), self._clock.total_s
        known = await until(lambda: not self._differs(), GIVEN_UP_S)
        took_s = self._loop.time() - begun_s - (self._clock.total_s - stalled_s)
        if not known:
            raise self._wrong(f"{self._differs()}: for {GIVEN_UP_S:g} s")
        self.tally.settled_s.setdefault(what, []).append(took_s)
        if took_s > NOTICED_S:
            raise self._wrong(f"after {what} the kubelet knows only after {took_s:.2f} s what it has to")
        return took_s

    def _must_admit(self, event: Event) -> str:
        """Why a pod has to be admitted; empty: it does not have to be."""
        wish = event.values[0]
        assert isinstance(wish, Wish)
        if not (self.node.up[KUBELET] and self.node.up[PLUGIN]):
            return ""
        in_use = self.node.in_use()
        states = expected(self.machine, self.files, self.memory, in_use, self._loop.time())
        wanted = Counter[str]()
        for name, each in wish.containers:
            wanted += Counter() if name.startswith("init") else Counter(each)
        free = {
            name: {one for one, state in states.get(name, {}).items() if state == GOOD} - set(in_use.get(name, ()))
            for name in wanted
        }
        if any(len(free[name]) < count for name, count in wanted.items()):
            return ""
        return "there are enough devices"

    async def _judge(self) -> None:
        if wrong := self.workloads.wrong or list(filter(None, [self.workloads.twice()])):
            raise self._wrong("; ".join(wrong))
        if not await until(lambda: not self.workloads.daemon_differs(), GIVEN_UP_S):
            raise self._wrong(self.workloads.daemon_differs())

    def _wrong(self, sentence: str) -> Wrong:
        return Wrong(sentence, self._step)

    # ---------------------------------------------------------------- the end

    async def _end(self) -> None:
        """All parts come back, all pods and then all parts end, and nothing is left of them."""
        for part in PARTS:
            if not self.node.up[part]:
                await self._start(part)
        for name in [*self.workloads.running, *self.workloads.waiting]:
            self.workloads.end(name)
        await self.workloads.sync()
        await asyncio.sleep(max(self.memory.settles_s() - self._loop.time(), 0))
        await self._settle("end")
        await self._judge()
        if not await until(lambda: not "; ".join(self._left()), GIVEN_UP_S):
            raise self._wrong(f"left at the end: {'; '.join(self._left())}")
        for part in self.script.ends:
            await self._stop(part, killed=False)
        if left := sorted(each.name for each in self.node.kubelet.plugins_dir.glob("*.sock") if each != self.node.kubelet.socket):
            raise self._wrong(f"sockets are left at the end: {', '.join(left)}")
        self.tally.counts.update(
            admitted=self.workloads.admitted, refused=self.workloads.refused, created=self.workloads.created
        )

    def _left(self) -> Iterator[str]:
        """What is left of pods that have ended."""
        world, guard = self.node.world, self.node.world.controller.devices
        if in_use := {name: ids for name, ids in self.node.in_use().items() if ids}:
            yield f"the ids {in_use}"
        if world.runtime.core.records.sandboxes or world.runtime.core.records.containers:
            yield "sandboxes or containers of the runtime"
        if world.controller.node.containers or world.controller.node.grants:
            yield "containers that criproxy knows"
        if guard.sandboxes():
            yield "sandboxes of whose devices criproxy knows"
        plugin = self.node.plugin
        if plugin is not None and (held := [each.resource for each in plugin._plugins.status if each.held]):
            yield f"ids that are listed only for their containers, of {', '.join(held)}"

    async def _close(self) -> None:
        """End what still runs after something was wrong."""
        for part in (PLUGIN, "criproxy", "runtime", KUBELET):
            if self.node.up[part]:
                with suppress(Exception):
                    await self.node.stop(part)
        await self.node.close()
        self.machine.close()


class Stalls:
    """How long the event loop did not get to its work, because the machine had others to run."""

    TICK_S = 0.02

    def __init__(self) -> None:
        self.total_s = 0.0
        self._ticking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to measure."""
        self._ticking = asyncio.create_task(self._tick(), name="stalls")

    def stop(self) -> None:
        """Measure no more."""
        if self._ticking is not None:
            self._ticking.cancel()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            begun_s = loop.time()
            await asyncio.sleep(self.TICK_S)
            self.total_s += max(loop.time() - begun_s - 2 * self.TICK_S, 0.0)
