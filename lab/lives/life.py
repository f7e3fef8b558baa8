"""One life of a node, from its script: does what happens, waits until the kubelet knows, and judges."""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lab.lives.expected import NOTICED_S
from lab.lives.happenings import Happenings, left, must_admit, unknown
from lab.lives.machine import Machine
from lab.lives.node import CRIPROXY, KUBELET, PARTS, PLUGIN, RUNTIME, parts, until
from lab.lives.pods import Wish
from lab.lives.script import Script, Step
from tests.node.world import RecordingLog

GIVEN_UP_S = 15.0
"""After so long what should be will never be."""

UNSEEN_S = 0.7
"""So long the device plugin may need to notice what makes no difference to the kubelet at the moment."""


TICK_S = 0.02


@dataclass(slots=True)
class Tally:
    """What lives had."""

    events: Counter[str] = field(default_factory=Counter)
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
        self.now = Happenings(self.machine, script.files)
        self.log: RecordingLog = self.now.node.log
        self._stalled_s = 0.0
        """How long the event loop did not get to its work, because the machine had others to run."""
        self._step = 0

    async def live(self) -> None:
        """All of it.

        Raises:
            Wrong: something was wrong.
        """
        with parts(self.machine, self.log):
            ticking = asyncio.create_task(self._tick(), name="stalls")
            try:
                await self._begin()
                for step in self.script.steps:
                    self._step += 1
                    await self._do(step)
                self._step += 1
                await self._end()
            finally:
                ticking.cancel()
                await self._close()

    async def _tick(self) -> None:
        while True:
            begun_s = self.now.now_s
            await asyncio.sleep(TICK_S)
            self._stalled_s += max(self.now.now_s - begun_s - 2 * TICK_S, 0.0)

    async def _begin(self) -> None:
        for kind, number in self.script.cards:
            self.machine.add(kind, number)
        self.now.files.write(self.now.policy, self.machine)
        for part in (RUNTIME, CRIPROXY, KUBELET, PLUGIN):
            await self.now.start(part)
        await self._settle("begin")

    async def _do(self, step: Step) -> None:
        self.tally.events.update(event.kind for event in step)
        workloads, alone = self.now.workloads, len(step) == 1
        wish = step[0].values[0] if alone and step[0].kind == "pod" else None
        must, before = isinstance(wish, Wish) and must_admit(self.now, wish), workloads.refused
        await asyncio.gather(*(self.now.happens(event) for event in step))
        self.now.cards_changed(step)
        if must and workloads.refused > before:
            raise self._wrong(f"{step[0].subject} was not admitted, though there are enough devices")
        took_s = await self._settle(step[0].kind if alone else "several")
        was_seen = alone and took_s > 0
        if not was_seen and any(event.subject.startswith(("card ", "health", "files")) for event in step):
            await self._pass(UNSEEN_S - took_s)
        await workloads.sync()
        await self._settle("pods")
        await self._judge()

    async def _settle(self, what: str) -> float:
        """Wait until the kubelet knows what has happened; how long it did not, in seconds: 0 if it knows at once."""
        at_once = not unknown(self.now)
        begun_s, stalled_s = self.now.now_s, self._stalled_s
        known = await until(lambda: not unknown(self.now), GIVEN_UP_S)
        took_s = 0.0 if at_once else self.now.now_s - begun_s - (self._stalled_s - stalled_s)
        if not known:
            raise self._wrong(f"{unknown(self.now)}: for {GIVEN_UP_S:g} s")
        if took_s > NOTICED_S:
            raise self._wrong(f"after {what} the kubelet knows only after {took_s:.2f} s what it has to")
        return took_s

    async def _pass(self, seconds: float) -> None:
        """Let so much time pass in which the machine gets to its work."""
        until_s, stalled_s = self.now.now_s + seconds, self._stalled_s
        while (left_s := until_s + self._stalled_s - stalled_s - self.now.now_s) > 0:  # noqa: ASYNC110 (only time passes)
            await asyncio.sleep(left_s)

    async def _judge(self) -> None:
        workloads = self.now.workloads
        if wrong := workloads.wrong or list(filter(None, [workloads.twice()])):
            raise self._wrong("; ".join(wrong))
        if not await until(lambda: not workloads.daemon_differs(), GIVEN_UP_S):
            raise self._wrong(workloads.daemon_differs())

    def _wrong(self, sentence: str) -> Wrong:
        return Wrong(sentence, self._step)

    # ---------------------------------------------------------------- the end

    async def _end(self) -> None:
        """All parts come back, all pods and then all parts end, and nothing is left of them."""
        now, workloads = self.now, self.now.workloads
        for part in PARTS:
            if not now.node.up[part]:
                await now.start(part)
        for name in [*workloads.running, *workloads.waiting]:
            workloads.end(name)
        await workloads.sync()
        await asyncio.sleep(max(now.memory.settles_s() - now.now_s, 0))
        await self._settle("end")
        await self._judge()
        if not await until(lambda: not [*left(now)], GIVEN_UP_S):
            raise self._wrong(f"left at the end: {'; '.join(left(now))}")
        for part in self.script.ends:
            await now.stop(part, killed=False)
        kubelet = now.node.kubelet
        if sockets := sorted(each.name for each in kubelet.plugins_dir.glob("*.sock") if each != kubelet.socket):
            raise self._wrong(f"sockets are left at the end: {', '.join(sockets)}")
        self.tally.counts.update(admitted=workloads.admitted, refused=workloads.refused, created=workloads.created)

    async def _close(self) -> None:
        """End what still runs after something was wrong."""
        for part in (PLUGIN, CRIPROXY, RUNTIME, KUBELET):
            if self.now.node.up[part]:
                with suppress(Exception):
                    await self.now.node.stop(part)
        await self.now.node.close()
        self.machine.close()
