"""Scheduling policy, priority, nice and I/O priority of the threads of containers.

They are set on each thread: once the container is created, when its first process waits for its start, so that the
user's program has them at its first instruction; what it starts inherits them. Those that do not inherit them are found
by a look on a timer: processes of the kubelet's exec, and threads of a program that has set *reset-on-fork* itself.
"""

import errno
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from criproxy.controls.container_threads import ContainerThreads, Pinned
from criproxy.controls.parts import Part
from criproxy.controls.scheduling.calls import POLICY, Attributes, read, steps
from criproxy.controls.scheduling.goal import goal, only_roots, text_of
from criproxy.errors import reason_of
from criproxy.host.controllable import read_scheduler
from criproxy.host.files import read_number
from criproxy.model.controls import ContainerControls, Scheduling

MOST_AT_ONCE = 2000
"""Threads of a container that one call looks at; the next look goes on with the others."""
SAMPLE = 2
"""Threads known to be as they should be that a look reads; if one of them has been changed, it reads the others."""
REFUSALS = 3
"""When the kernel has refused so many threads, it is not asked for the others."""
_NOTHING = Scheduling()


class ThreadScheduling(Part):
    """Schedules the threads of containers."""

    name, field = "scheduling", "scheduling"

    def __init__(self, host_root: Path) -> None:
        self._root = host_root
        self._threads = ContainerThreads(host_root)
        self._known: dict[str, list[int]] = {}
        """Id → the threads that are as they should be, the one that was read longest ago first."""
        self._refused: dict[str, Mapping[str, OSError]] = {}
        """Id → what the kernel has refused, and how."""

    def apply(self, id: str, controls: ContainerControls, before: ContainerControls | None) -> list[str]:
        """Set all threads; what only *before* has set gets back what it was when the container started."""
        old = (before.scheduling if before else None) or _NOTHING
        if not controls.scheduling:
            return self.forget(id, before) if before else []
        self._put_back_replaced(before)
        work = _Pass(self._threads, controls.cgroup, controls.scheduling, old)
        self._known[id], self._refused[id] = work.set_all(), work.refused
        return self._troubles(work)

    def forget(self, id: str, before: ContainerControls) -> list[str]:
        """Put back what *before* has set."""
        self._known.pop(id, None)
        self._refused.pop(id, None)
        self._put_back_replaced(before)
        if not before.scheduling:
            return []
        work = _Pass(self._threads, before.cgroup, _NOTHING, before.scheduling)
        work.set_all(every=True)
        return self._troubles(work)

    def _put_back_replaced(self, before: ContainerControls | None) -> None:
        if before:
            for each in before.replaced:
                _Pass(self._threads, before.cgroup, _NOTHING, each).set_all(every=True)

    def look(self, id: str, controls: ContainerControls) -> list[str]:
        """Set new threads, and those that others have changed."""
        if not controls.scheduling:
            return []
        work = _Pass(self._threads, controls.cgroup, controls.scheduling, _NOTHING)
        before, refused = self._known.get(id, []), self._refused.get(id, {})
        if refused and not work.is_refused_again(refused):
            before = []  # what the kernel refused it now takes: all of them have to be looked at
        present = {*work.there}
        known = [number for number in before if number in present]
        new = present.difference(known)
        some, again = SAMPLE, known[:SAMPLE]
        if not all(map(work.is_as_it_should_be, again)):
            some, changed = MOST_AT_ONCE, work.changed
            again = work.set(known[:some])
            self.drift += work.changed - changed
        self._known[id] = [*known[some:], *again, *work.set(sorted(new))]
        self._refused[id] = work.refused
        return self._troubles(work)

    def machine(self) -> Mapping[str, Any]:
        """Return whether containers may have real-time policies."""
        found = read_scheduler(self._root)
        return {"realTime": found.runtime_us != 0 and found.pods_runtime_us != 0}

    def _troubles(self, work: "_Pass") -> list[str]:
        return [
            f"{text_of(work.new, what)} cannot be set: {reason_of(error)}{self._why(work, what, error)}"
            for what, error in work.refused.items()
        ]

    def _why(self, work: "_Pass", what: str, error: OSError) -> str:
        if what != POLICY:
            return ""
        if work.new.policy == "deadline" and error.errno in (errno.EPERM, errno.EBUSY):
            if error.errno == errno.EBUSY:
                return "; the machine has too little time left for another deadline"
            return "; a thread may have a deadline only if it may run on all CPUs"
        limit = self._root / "sys/fs/cgroup/cpu" / work.cgroup.lstrip("/") / "cpu.rt_runtime_us"
        if error.errno != errno.EPERM or (allowed := read_number(limit)) is None:
            return ""
        return f"; {limit} is {allowed}: so many us of each second this container may have real-time threads"


class _Pass:
    """One pass over threads of a container."""

    def __init__(self, threads: ContainerThreads, cgroup: str, new: Scheduling, old: Scheduling) -> None:
        self._threads, self.cgroup, self.new, self._old = threads, cgroup, new, old
        self.there = threads.numbers(cgroup)
        self.changed = 0
        self.refused: dict[str, OSError] = {}
        """What the kernel has refused for a thread, and how."""
        self._refusals = Counter[str]()

    def set_all(self, *, every: bool = False) -> list[int]:
        """Set all threads, also those that start meanwhile; return those that need not be tried again.

        With *every*, also more than `MOST_AT_ONCE`: no look goes on with the others.
        """
        fine = self.set(self.there, every=every)
        for new in self._threads.others(self.cgroup, self.there):
            fine += self.set(new, every=every)
        return fine

    def set(self, numbers: Sequence[int], *, every: bool = False) -> list[int]:
        """Set *numbers*, or the first `MOST_AT_ONCE` of them; return those that need not be tried again."""
        return [number for number in numbers[: None if every else MOST_AT_ONCE] if self._set(number)]

    def is_refused_again(self, refused: Mapping[str, OSError]) -> bool:
        """Try one thread; if that is refused, *refused* holds for all, and none of them is tried."""
        self.set(self.there[:1])
        if not self.refused:
            return False
        self.refused = {**refused, **self.refused}
        self._refusals.update(dict.fromkeys(self.refused, REFUSALS))
        return True

    def is_as_it_should_be(self, number: int) -> bool:
        """Whether a thread needs no change; True if it has ended."""
        try:
            return not self._steps(number, read(number))
        except OSError:
            return True

    def _set(self, number: int) -> bool:
        """Set a thread; False if it has ended, or has left the container."""
        try:
            if not self._steps(number, read(number)):
                return True
            with self._threads.pinned(number, self.cgroup) as thread:
                if thread:
                    self._change(thread)
                return thread is not None
        except ProcessLookupError:
            return False

    def _change(self, thread: Pinned) -> None:
        now = read(thread.number)
        wanted = self._goal(thread.number, now)
        try:
            for what, call in self._steps(thread.number, now).items():
                try:
                    call()
                except ProcessLookupError:
                    raise
                except OSError as error:
                    self.refused.setdefault(what, error)
                    self._refusals[what] += 1
                else:
                    self.changed += 1
        finally:
            if (parent := thread.parent_of_stranger()) is not None:
                _give_back(thread.number, wanted, parent)

    def _steps(self, number: int, now: Attributes) -> Mapping[str, Callable[[], None]]:
        found = steps(number, now, self._goal(number, now))
        return {what: call for what, call in found.items() if self._refusals[what] < REFUSALS}

    def _goal(self, number: int, now: Attributes) -> Attributes:
        is_left_out = only_roots(self.new) and not any(self._threads.roots([number], self._inside))
        new = _NOTHING if is_left_out else self.new
        return goal(now, new, self._old, now if self._old is _NOTHING else self._usual)

    @cached_property
    def _inside(self) -> frozenset[int]:
        return frozenset(self.there)

    @cached_property
    def _usual(self) -> Attributes:
        """What threads of this container have without a class: that of the process that has started the first one."""
        return _attributes_of(self._threads.starter(self.there))


def _attributes_of(process: int) -> Attributes:
    """Return how a process is scheduled; as most are if it is unknown."""
    try:
        return read(process) if process else Attributes()
    except OSError:
        return Attributes()


def _give_back(number: int, wrong: Attributes, parent: int) -> None:
    """Give a thread of somebody else, born a moment ago, what it was born with, if it has what it was not to get."""
    with suppress(OSError):  # it has ended as well
        if (now := read(number)) == wrong:
            for call in steps(number, now, _attributes_of(parent)).values():
                call()
