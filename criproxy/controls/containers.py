"""Brings containers to the controls that they shall have: which parts are called for which of them, and the journal."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Any

from criproxy.controls.journal import CONTAINERS, Journal
from criproxy.controls.lane import Lane
from criproxy.controls.parts import Part
from criproxy.errors import reason_of
from criproxy.model.controls import BlockIo, ContainerControls, Desired, Scheduling, Trouble
from criproxy.model.node import changed_keys

CLASSES = "classes"
"""The item of a lane that prepares classes."""
MACHINE_S = 30.0
"""How long what the machine can is taken to be the same: the daemon asks again and again."""


@dataclass(slots=True)
class _Caller:
    """A part, and the outcome of its last call for each container."""

    part: Part
    lane: Lane
    troubles: dict[str, list[str]] = field(default_factory=dict)
    """By container, or `CLASSES`."""
    missing: set[str] = field(default_factory=set)
    """Those for which its last call has failed, or hangs."""

    async def run(self, items: Mapping[str, "partial[list[str]]"]) -> None:
        """Call it for each item, and keep what it says."""
        results = await self.lane.run(items.items())
        for name in items:
            result = results.get(name)
            if isinstance(result, list):
                self.missing.discard(name)
                self.troubles[name] = result
            else:
                self.missing.add(name)
                failed = f"{self.part.name} failed: {reason_of(result)}" if isinstance(result, Exception) else ""
                self.troubles[name] = [failed] if failed else []  # the lane says what hangs
            if not self.troubles[name]:
                del self.troubles[name]

    def concerns(self, controls: ContainerControls | None) -> bool:
        """Whether *controls* have something for this part: most have something for one or two."""
        return controls is not None and getattr(controls, self.part.field) not in ("", None)

    def forget(self, ids: Collection[str]) -> None:
        """Containers have no controls any more."""
        for key in ids:
            self.troubles.pop(key, None)
            self.missing.discard(key)


class Containers:
    """The controls of all containers."""

    def __init__(self, parts: Sequence[Part], journal: Journal, came_back: Callable[[], None]) -> None:
        self._callers = [_Caller(part, Lane(part.name, came_back)) for part in parts]
        self._journal, self._disk = journal, Lane("journal", came_back)
        self.problem = ""
        """Why something is not applied, or not forgotten: it could not be stored; empty if all is."""
        self._layout: Desired | None = None
        self._wanted: Mapping[str, ContainerControls] = journal.containers
        self._machine: dict[str, Any] = {}
        self._machine_until_s = 0.0

    @property
    def drift(self) -> int:
        """How often a part has repaired something."""
        return sum(caller.part.drift for caller in self._callers)

    def troubles(self) -> Iterator[Trouble]:
        """Yield what could not be applied."""
        if self.problem:
            yield Trouble(what="journal", text=self.problem)
        for caller in self._callers:
            for key, texts in caller.troubles.items():
                yield from (Trouble(what="rdt" if key == CLASSES else key, text=text) for text in texts)
            for key, since_s in caller.lane.hanging.items():
                yield Trouble(what=key, text=f"{caller.part.name}: the kernel has not answered for {since_s:.0f} s")

    async def apply(self, desired: Desired, *, look: bool) -> None:
        """Bring all containers to what is desired; without *look*, only those that have changed or failed."""
        stored, wanted, self.problem = self._journal.containers, desired.containers, ""
        self._wanted = wanted
        differing = changed_keys(stored, wanted)
        changed = {key: wanted[key] for key in differing if key in wanted and stored.get(key) != wanted[key]}
        gone = [key for key in differing if key not in wanted]
        if changed and not await self._store({key: merged(each, stored.get(key)) for key, each in changed.items()}):
            changed = {}
        without = replace(desired, containers={})
        classes = look or without != self._layout
        self._layout = without
        looked = stored if look else gone
        calls = (self._call(each, desired, changed, stored, looked, classes=classes) for each in self._callers)
        missing = set[str]().union(*await asyncio.gather(*calls))
        finished = [key for key in gone if key not in missing]
        replaced = [key for key, each in changed.items() if merged(each, stored.get(key)) != each]
        ended = {key: changed[key] for key in replaced if key not in missing}
        if ended or finished:
            await self._store(ended, finished)
        for caller in self._callers:
            caller.forget(finished)

    async def apply_to(self, id: str, controls: ContainerControls) -> None:
        """Apply to one container at once, beside passes: it has its first process now.

        A pass stores it before, and applies to it, too: what is not stored would never be put back. If a pass has
        replaced *controls* meanwhile, what it has put back may be set again: so it is put back once more.
        """
        if id not in self._journal.containers:
            return
        callers = [each for each in self._callers if each.concerns(controls)]
        await asyncio.gather(*(each.run({id: partial(each.part.apply, id, controls, controls)}) for each in callers))
        if (now := self._wanted.get(id)) is None:
            await asyncio.gather(*(each.run({id: partial(each.part.forget, id, controls)}) for each in callers))
        elif now != controls:
            await asyncio.gather(*(each.run({id: partial(each.part.apply, id, now, controls)}) for each in callers))

    async def _call(
        self,
        caller: _Caller,
        desired: Desired,
        changed: Mapping[str, ContainerControls],
        stored: Mapping[str, ContainerControls],
        looked: Iterable[str],
        *,
        classes: bool,
    ) -> set[str]:
        """Call one part for all containers that need it; return those for which it has failed, or hangs.

        These are the ones that have *changed* or failed before, and of *stored* those to be *looked* at, or forgotten.
        """
        part, wanted = caller.part, desired.containers
        if classes:
            await caller.run({CLASSES: partial(part.configure, desired)})
        items: dict[str, partial[list[str]]] = {}
        for key in dict.fromkeys((*looked, *(caller.missing & stored.keys()), *changed)):
            new, before = wanted.get(key), stored.get(key)
            if not (caller.concerns(new) or caller.concerns(before) or key in caller.troubles):
                continue
            if new is None:
                items[key] = partial(part.forget, key, stored[key])
            elif key in changed or key in caller.missing:
                items[key] = partial(part.apply, key, new, before)
            else:
                items[key] = partial(part.look, key, new)
        await caller.run(items)
        return items.keys() & caller.missing

    async def machine(self) -> dict[str, Any]:
        """Return what the machine can for containers, as it was within `MACHINE_S`; what hangs is missing."""
        if monotonic() < self._machine_until_s:
            return self._machine
        found: dict[str, Any] = {}
        for caller in self._callers:
            result = await caller.lane.one("machine", caller.part.machine)
            found |= result if isinstance(result, Mapping) else {}
        self._machine, self._machine_until_s = found, monotonic() + MACHINE_S
        return found

    async def put_back(self) -> None:
        """Remove what belongs to no container; all are forgotten already."""
        for caller in self._callers:
            await caller.run({CLASSES: partial(caller.part.put_back)})

    async def _store(self, containers: Mapping[str, ContainerControls], gone: Iterable[str] = ()) -> bool:
        name = str(self._journal.directory / CONTAINERS)
        results = await self._disk.run([(name, partial(self._journal.keep_containers, containers, [*gone]))])
        error = results.get(name, TimeoutError("it has not answered in time"))
        if isinstance(error, Exception):
            self.problem = f"what is applied to containers cannot be stored in {name}: {reason_of(error)}"
            return False
        return True


def merged(new: ContainerControls, old: ContainerControls | None) -> ContainerControls:
    """Return all that may be set while *new* replaces *old*: after a crash, all of it is put back."""
    if old is None:
        return new
    block_io = new.block_io or old.block_io
    if new.block_io and old.block_io and new.block_io != old.block_io:
        more = tuple(each for each in old.block_io.throttles if each not in new.block_io.throttles)
        weight = new.block_io.weight or old.block_io.weight
        block_io = BlockIo(weight=weight, throttles=(*new.block_io.throttles, *more))
    return replace(
        new,
        scheduling=new.scheduling or old.scheduling,
        replaced=_replaced(new, old),
        block_io=block_io,
        rdt_class=new.rdt_class or old.rdt_class,
        burst_us=old.burst_us if new.burst_us is None else new.burst_us,
    )


def _replaced(new: ContainerControls, old: ContainerControls) -> tuple[Scheduling, ...]:
    found = (*old.replaced, *([old.scheduling] if old.scheduling and new.scheduling else []))
    return tuple(dict.fromkeys(each for each in found if each != new.scheduling))
