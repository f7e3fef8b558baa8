"""The RDT classes of containers: their threads are put into the control groups of resctrl, and followed.

A thread starts in the group of the one that started it, so that all threads of a container are in its group if the
first one is, before the user's program begins. Those that come from outside, as a process of an exec, are found by a
look on a timer.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from criproxy.controls.container_threads import ContainerThreads
from criproxy.controls.journal import Journal
from criproxy.controls.parts import Part
from criproxy.controls.resctrl.groups import GroupError, Groups, KernelGroups
from criproxy.errors import CriproxyError
from criproxy.host.resctrl import find_resctrl, read_resctrl
from criproxy.model.controls import ContainerControls, Desired, Rdt
from criproxy.model.machine.resctrl import ROOT_CLASS, Resctrl, resolve

MOST_AT_ONCE = 2000
"""Threads of a container that one call moves; the next look goes on with the others."""
_FAILURES = 3
"""After so many threads that resctrl does not take, a call does not try the others."""


class RdtClasses(Part):
    """Puts containers into control groups.

    Args:
        host_root: where the machine's files are.
        journal: what was there before.
        files: reads and writes resctrl.
    """

    name, field = "RDT", "rdt_class"

    def __init__(self, host_root: Path, journal: Journal, files: KernelGroups | None = None) -> None:
        self._root, self._journal, self._files = host_root, journal, files or KernelGroups()
        self._threads = ContainerThreads(host_root)
        self._groups: Groups | None = None
        self._stale: frozenset[str] = frozenset()
        """Groups that had threads, but no class, when the classes were prepared last."""
        self._absent, self._missing = False, ""
        """Whether nothing can be divided, and if classes need it, why."""
        self._why_not: dict[str, str] = {}
        """Class → why it has no group."""
        self._inside: dict[Path, set[int]] = {}
        """Group → its threads when the classes were prepared last, and those that were moved since."""
        self._known: dict[str, frozenset[int]] = {}
        """Id → threads that were put into their group."""

    # ---------------------------------------------------------------- classes

    def configure(self, desired: Desired) -> list[str]:
        """Make the groups of the classes, and remove those that have none any more."""
        rdt = desired.rdt or Rdt()
        groups = self._found_groups()
        self._absent, self._missing = False, ""
        try:
            machine = read_resctrl(self._root)
        except CriproxyError as error:
            self._absent, self._missing = True, str(error) if _needed(rdt) else ""
            return [self._missing] if self._missing else []
        if groups is None:  # it was mounted a moment ago
            return []
        troubles = self._remove_old(groups, {each.name for each in rdt.classes})
        troubles += self._ensure(groups, rdt, machine)
        places = [groups.path(each.name) for each in rdt.classes]
        self._inside = {place: {*groups.tasks(place)} for place in places}
        return troubles

    def put_back(self) -> list[str]:
        """Remove all groups of ours, and put back what the root group had."""
        self._stale = frozenset()
        if not (groups := self._found_groups()):
            return []
        return [*_removed(groups, groups.ours()), *_root_restored(groups)]

    def machine(self) -> Mapping[str, Any]:
        """Return what can be divided, and into how many groups; or what is missing."""
        try:
            found = read_resctrl(self._root)
        except CriproxyError as error:
            return {"resctrl": {"missing": str(error)}}
        resources = [*found.caches, *(["MB"] if found.bandwidth else [])]
        return {"resctrl": {"resources": resources, "groups": found.groups}}

    def _found_groups(self) -> Groups | None:
        """Return what is mounted now; None if resctrl is not."""
        found = find_resctrl(self._root)
        if not found:
            self._groups = None
        elif not self._groups or self._groups.mount != found[0]:
            self._groups = Groups(found[0], self._journal.directory, self._journal.boot, self._files)
        return self._groups

    def _remove_old(self, groups: Groups, names: Collection[str]) -> list[str]:
        """Remove the groups of classes that are no more: the empty ones now, the others once their containers had time.

        The kernel puts the threads of a group that is removed into the root group, where they would otherwise have got
        the group of another class, or that in which they were before.
        """
        old = [name for name in groups.ours() if name not in names]
        full = {name for name in old if groups.tasks(groups.path(name))}
        now = [name for name in old if name not in full or name in self._stale]
        self._stale = frozenset(full - {*now})
        return [*_removed(groups, now), *(() if ROOT_CLASS in names else _root_restored(groups))]

    def _ensure(self, groups: Groups, rdt: Rdt, machine: Resctrl) -> list[str]:
        resolved = resolve(rdt, machine)
        self._why_not = {}
        troubles = [*resolved.mistakes]
        for name, schemata in resolved.schemata.items():
            try:
                self.drift += groups.ensure(name, schemata, machine.groups)
            except GroupError as error:
                troubles.append(str(error))
                self._why_not[name] = str(error)
        return troubles

    # ---------------------------------------------------------------- containers

    def apply(self, id: str, controls: ContainerControls, before: ContainerControls | None) -> list[str]:
        """Put all threads of a container into the group of its class."""
        if not controls.rdt_class:
            return self.forget(id, before) if before else []
        groups = self._found_groups()
        if not groups or not groups.exists(controls.rdt_class):
            return self._no_group(controls.rdt_class)
        group = groups.path(controls.rdt_class)
        had = {*groups.tasks(group)}
        move = _Move(self._threads, groups, controls.cgroup, group)
        self._keep_home(id, groups, self._threads.numbers(controls.cgroup))
        fine = had | move.all_but(had)
        self._inside.setdefault(group, set()).update(fine)
        self._known[id] = frozenset(fine.intersection(self._threads.numbers(controls.cgroup)))
        return move.troubles

    def forget(self, id: str, before: ContainerControls) -> list[str]:
        """Put the threads of a container back into the group in which they were."""
        self._known.pop(id, None)
        groups, home = self._found_groups(), self._journal.former_of(id, self.field)
        if not before.rdt_class or not groups or not groups.exists(before.rdt_class):
            return []
        group = groups.path(before.rdt_class)
        target = groups.mount / home if home and (groups.mount / home).is_dir() else groups.mount
        if target == group:
            return []
        move = _Move(self._threads, groups, before.cgroup, target)
        elsewhere = {*self._threads.numbers(before.cgroup)} - groups.tasks(group)
        move.all_but(elsewhere, every=True)
        return move.troubles

    def look(self, id: str, controls: ContainerControls) -> list[str]:
        """Move new threads, and those that others have moved."""
        if not controls.rdt_class:
            return []
        groups = self._groups
        if not groups or not groups.exists(controls.rdt_class):
            return self._no_group(controls.rdt_class)
        group = groups.path(controls.rdt_class)
        inside, known = self._inside.setdefault(group, set()), self._known.get(id, frozenset())
        there = self._threads.numbers(controls.cgroup)
        outside = [number for number in there if number not in inside]
        self._keep_home(id, groups, outside)
        move = _Move(self._threads, groups, controls.cgroup, group)
        moved = move.these(outside[:MOST_AT_ONCE])
        self.drift += len(moved & known)
        inside |= moved
        self._known[id] = frozenset(inside.intersection(there))
        return move.troubles

    def _keep_home(self, id: str, groups: Groups, numbers: Sequence[int]) -> None:
        """Store in which group a container was, that has these threads, before the first of them moves."""
        if numbers and self._journal.former_of(id, self.field) is None:
            home = groups.home(numbers[0], self._root / "proc")
            self._journal.keep_former(id, self.field, str(home.relative_to(groups.mount)))

    def _no_group(self, name: str) -> list[str]:
        """Return why a class has no group; nothing if the machine can divide nothing, and need not."""
        if self._absent:
            return [self._missing] if self._missing else []
        return [self._why_not.get(name) or f"RDT class {name} has no control group"]


def _needed(rdt: Rdt) -> bool:
    """Whether classes divide something that the machine must have."""
    parts = [*(each.allocations for each in rdt.classes), *(each.allocations for each in rdt.partitions)]
    return any(each.resource[:2] not in rdt.optional for part in parts for each in part)


class _Move:
    """Moves threads of one container into a group."""

    def __init__(self, threads: ContainerThreads, groups: Groups, cgroup: str, group: Path) -> None:
        self._threads, self._groups, self._cgroup, self._group = threads, groups, cgroup, group
        self.troubles: list[str] = []

    def all_but(self, left_out: Collection[int], *, every: bool = False) -> set[int]:
        """Move all threads but those, also those that start meanwhile; return those that are in the group now.

        With *every*, also more than `MOST_AT_ONCE`: no look goes on with the others.
        """
        moved = set[int]()
        for new in self._threads.others(self._cgroup, left_out):
            if self.troubles:
                break
            moved |= self.these(new[: None if every else MOST_AT_ONCE])
        return moved

    def these(self, numbers: Iterable[int]) -> set[int]:
        """Move *numbers*; return those that are in the group now."""
        moved = set[int]()
        for number in numbers:
            if len(self.troubles) >= _FAILURES:
                break
            try:
                if self._one(number):
                    moved.add(number)
            except ProcessLookupError:
                continue
            except GroupError as error:
                self.troubles.append(str(error))
        return moved

    def _one(self, number: int) -> bool:
        """Move a thread; False if it has ended, or has left the container."""
        with self._threads.pinned(number, self._cgroup) as thread:
            if thread:
                try:
                    self._groups.move(number, self._group)
                finally:
                    if (parent := thread.parent_of_stranger()) is not None:
                        self._give_back(number, parent)
            return thread is not None

    def _give_back(self, number: int, parent: int) -> None:
        """Put a thread of somebody else, born a moment ago, into the group of its parent, where it was born."""
        if number in self._groups.tasks(self._group):
            self._groups.move(number, self._groups.group_of(parent, self._threads.proc))


def _removed(groups: Groups, names: Iterable[str]) -> Iterator[str]:
    """Remove the groups of these classes; yield what the kernel has against it."""
    for name in names:
        try:
            groups.remove(name)
        except GroupError as error:
            yield str(error)


def _root_restored(groups: Groups) -> Iterator[str]:
    """Put back what the root group had; yield what resctrl has against it."""
    try:
        groups.restore_root()
    except GroupError as error:
        yield str(error)
