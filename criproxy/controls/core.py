"""What is desired, and the two kinds of passes that apply it: one for files of the machine, one for containers."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from time import time
from typing import Any

from criproxy import __version__
from criproxy.controls.arrivals import Arrivals
from criproxy.controls.containers import Containers
from criproxy.controls.journal import Journal
from criproxy.controls.lane import Lane, Passes
from criproxy.controls.machine.facts import CPUS, Facts
from criproxy.controls.machine.files import ControlledFiles
from criproxy.controls.machine.irqbalance import Banned, IrqbalanceFiles, unreachable
from criproxy.controls.machine.kernel import KernelFiles, Value
from criproxy.controls.machine.layout import Layout, layout, needed_cpus, needs_uncore
from criproxy.controls.parts import Part
from criproxy.controls.protocol import Changes, parse_apply
from criproxy.host.files import ids_of, read_ids
from criproxy.model.controls import NOTHING_DESIRED, ControlsAnswer, Desired, Trouble
from criproxy.model.node import changed_keys
from criproxy.model.text.plain import to_plain

LOOK_S = 60.0
"""How often all files and threads are read again."""
LONGEST_LOOK_S = 10.0
"""After so long, the look at containers begins although that at files has not ended."""
ANSWER_S = 0.2
"""After so long, ``apply`` is answered although something is still to be done: starts of containers wait for it."""
MOST_TROUBLES = 100
"""In one answer."""
_UNREACHABLE_EVERY = 10
"""Looks between two searches for an irqbalance without a socket, for which all processes are read."""
_ADVICE = "set IRQBALANCE_BANNED_CPULIST in /etc/default/irqbalance or /etc/sysconfig/irqbalance, and restart it"


class Controls:
    """Everything that this program applies.

    Args:
        host_root: the folder with /proc, /sys and /run.
        journal: what was there before.
        parts: apply what containers have.
        kernel: reads and writes the files of the machine.
    """

    def __init__(
        self, host_root: Path, journal: Journal, parts: tuple[Part, ...], kernel: KernelFiles | None = None
    ) -> None:
        self.layout_passes = Passes(self._apply_layout)
        self.container_passes = Passes(self._apply_containers)
        self._root = host_root
        self._desired: Desired | None = None
        self._generation, self._since_s = 0, 0.0
        self._irqbalance = IrqbalanceFiles(host_root, kernel or KernelFiles())
        self._files_lane = Lane("files", self.layout_passes.ask)
        self._facts = Facts(host_root, self._files_lane, self._irqbalance)
        self._files = ControlledFiles(self._files_lane, journal, self._irqbalance)
        self._containers = Containers(parts, journal, self.container_passes.ask)
        self.arrivals = Arrivals(host_root, self._arrived)
        self._journal = journal
        self._troubles: list[Trouble] = []
        """Of the layout."""
        self._looks = 0
        self._irqbalance_problem = ""

    # ---------------------------------------------------------------- commands

    async def apply(self, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        """Take what is desired, and answer when it is applied, or after a moment.

        Raises:
            UsageError: the arguments are invalid; nothing is changed.
        """
        generation, new = await asyncio.to_thread(parse_apply, arguments)
        if isinstance(new, Changes):
            if self._desired is None or new.after != self._generation:
                return to_plain(replace(self.answer(), needs_whole=True))
            new = new.applied_to(self._desired)
        self.desire(new, generation)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.container_passes.wait(ANSWER_S))
            group.create_task(self.layout_passes.wait(ANSWER_S))
        return to_plain(self.answer())

    async def status(self, _arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        """Return what is desired and applied, what could not be, and what the machine can."""
        desired, answer = self._desired or NOTHING_DESIRED, self.answer()
        return {
            "version": __version__,
            "generation": answer.generation,
            "since": self._since_s,
            "pending": answer.pending,
            "containers": {"desired": len(desired.containers), "applied": len(self._journal.containers)},
            "files": {"applied": len(self._files), "immovable": len(self._files.immovable)},
            "troubles": to_plain(answer.troubles),
            "troubles_left_out": answer.troubles_left_out,
            "drift": answer.drift,
            "repaired": self._files.repaired,
            "machine": await self._containers.machine(),
        }

    def desire(self, desired: Desired, generation: int) -> None:
        """Let *desired* be applied."""
        before, self._desired = self._desired, desired
        self._generation, self._since_s = generation, time()
        self.container_passes.ask(look=before is None)
        self._expect(before or NOTHING_DESIRED, desired)
        if before is None or replace(before, containers={}) != replace(desired, containers={}):
            self.layout_passes.ask(look=before is None)

    def _expect(self, before: Desired, desired: Desired) -> None:
        """Apply to new containers once more when they have their first process."""
        for key in changed_keys(before.containers, desired.containers):
            if key not in desired.containers:
                self.arrivals.forget(key)
            elif key not in before.containers:
                self.arrivals.expect(key, desired.containers[key].cgroup)

    async def _arrived(self, id: str) -> None:
        if self._desired and (controls := self._desired.containers.get(id)):
            await self._containers.apply_to(id, controls)

    def answer(self) -> ControlsAnswer:
        """Return how things are."""
        troubles = [*islice(self._all_troubles(), 10 * MOST_TROUBLES)]
        return ControlsAnswer(
            generation=self._generation,
            pending=self.container_passes.pending or self.layout_passes.pending or bool(self._containers.problem),
            troubles=tuple(troubles[:MOST_TROUBLES]),
            troubles_left_out=max(0, len(troubles) - MOST_TROUBLES),
            drift=self._files.drift + self._containers.drift,
        )

    @property
    def is_put_back(self) -> bool:
        """Whether nothing is left of what this program has applied."""
        return not self._journal.originals and not self._journal.containers

    def _all_troubles(self) -> Iterator[Trouble]:
        yield from self._containers.troubles()
        yield from self._troubles
        if self._irqbalance_problem:
            yield Trouble(what="irqbalance", text=self._irqbalance_problem)
        yield from (Trouble(what="files", text=text) for text in self._facts.problems)
        yield from (Trouble(what="files", text=text) for text in self._files.troubles)

    # ---------------------------------------------------------------- passes

    async def look(self) -> None:
        """Read all again from time to time, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.layout_passes.ask(look=True)
            # Beside each other, their threads would take turns with each file, which costs as much as the files.
            await self.layout_passes.wait(LONGEST_LOOK_S)
            self.container_passes.ask(look=True)

    async def put_back(self) -> None:
        """Put all back, and remove what belongs to no container."""
        self.desire(NOTHING_DESIRED, 0)
        await self._apply_containers(look=True)
        await self._containers.put_back()
        await self._apply_layout(look=True)

    async def _apply_containers(self, look: bool) -> None:
        if self._desired is not None:
            await self._containers.apply(self._desired, look=look)

    async def _apply_layout(self, look: bool) -> None:
        if (desired := self._desired) is None:
            return
        cpus, uncore = needed_cpus(desired), needs_uncore(desired)
        machine = await self._facts.machine(cpus, uncore=uncore, irqs=desired.irqs is not None)
        found = await asyncio.to_thread(layout, desired, machine)
        await self._add_irqbalance(desired, found, look=look)
        self._troubles = found.troubles
        await self._files.apply(found.files, look=look)
        if self._files.vanished:
            self._facts.forget()

    async def _add_irqbalance(self, desired: Desired, found: Layout, *, look: bool) -> None:
        """Let irqbalance leave alone what belongs to others, if it runs."""
        self._looks += look
        if desired.irqs is None:
            self._irqbalance_problem = ""
            return
        path, work = self._irqbalance.path, partial(self._banned, desired.irqs.cpus, found.claimed)
        value = await self._files_lane.one(path, work)
        if isinstance(value, Banned):
            found.files[path] = value
            self._irqbalance_problem = ""
        elif look and self._looks % _UNREACHABLE_EVERY == 1:
            runs = await asyncio.to_thread(unreachable, self._root)
            text = f"irqbalance runs without a socket, and moves interrupts to any CPU: {_ADVICE}"
            self._irqbalance_problem = text if runs else ""

    def _banned(self, allowed: str, claimed: set[int]) -> Value | None:
        if not self._irqbalance.runs:
            return None
        online = read_ids(self._root / CPUS / "online") or frozenset()
        return Banned(online - (ids_of(allowed) or online), frozenset(claimed))
