"""The threads of containers: which there are, and how one of them is changed by its number without meeting another.

System calls and files of the kernel name a thread by its number. A thread may end at any moment, and the kernel then
gives its number to a new one, which may be anybody's. So a thread is *pinned* before it is changed: its folder in
/proc is opened, which belongs to this one thread for ever, and reading a file below it fails once it has ended, also if
its number is in use again. If the pinned thread is in the cgroup of the container before the change, and still exists
after it, the number was its number all the time, and nobody else was changed. If it has ended meanwhile, the change may
have met a newborn thread with its number, some microseconds old: the caller gives that one what it was born with, which
is what its parent has (`Pinned.parent_of_stranger`).
"""

import os
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from criproxy.host.cgroup import ContainerGroup, group_at, paths_by_controller
from criproxy.host.files import read_text

MOST_CGROUPS = 1000
"""Cgroups of one container that are looked at; one that may make cgroups could make any number."""
V1_CONTROLLER = "cpu"
_ADOPTS = 1
"""The machine's first process becomes the parent of those whose own has ended, however it is scheduled itself."""
_ROUNDS = 20
"""How often the threads of a container are listed: new ones may have started meanwhile."""
_LONGEST = 1 << 16
_LONGEST_LIST = 1 << 20


@dataclass(frozen=True, slots=True)
class Family:
    """Of which process a thread is, and which process is the parent of that."""

    process: int
    parent: int
    """0 if it is in another PID namespace than ours."""


class ContainerThreads:
    """Lists and pins the threads of containers, on a machine with its files below *host_root*."""

    def __init__(self, host_root: Path) -> None:
        self._root = host_root
        self.proc = host_root / "proc"

    def folder(self, cgroup: str) -> Path:
        """Return the folder in which a container's threads are listed; it may not exist.

        With cgroup v1, it is that of the controller cpu: a runtime puts the first process into that of cpuset before,
        and cannot put it into this one any more once it has a real-time policy.
        """
        group = group_at(self._root, cgroup)
        return Path(group.folder(V1_CONTROLLER)) if group else self._root / "sys/fs/cgroup" / V1_CONTROLLER

    def numbers(self, cgroup: str) -> list[int]:
        """Return the numbers of all threads of *cgroup* and those below it; empty if it does not exist."""
        group = group_at(self._root, cgroup)
        name, found = "cgroup.threads" if group and group.unified else "tasks", list[int]()
        for folder in _folders(group.folder(V1_CONTROLLER)) if group else ():
            found += _numbers(f"{folder}/{name}")
        return found

    def others(self, cgroup: str, known: Collection[int]) -> Iterator[list[int]]:
        """Yield the threads of *cgroup* that are not *known*, then those that have started meanwhile, and so on."""
        seen = {*known}
        for _ in range(_ROUNDS):
            if not (new := [number for number in self.numbers(cgroup) if number not in seen]):
                break
            seen.update(new)
            yield new

    @contextmanager
    def pinned(self, number: int, cgroup: str) -> Iterator["Pinned | None"]:
        """Pin a thread of *cgroup*; None if it has ended, or is not in that cgroup or below it."""
        group = group_at(self._root, cgroup)
        try:
            folder = os.open(self.proc / str(number), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            yield None
            return
        try:
            pinned = Pinned(number, folder, group, self)
            yield pinned if group and pinned.is_inside() else None
        finally:
            os.close(folder)

    def family(self, number: int) -> Family | None:
        """Return the process of a thread and its parent; None if it has ended."""
        if (text := read_text(self.proc / f"{number}/status")) is None:
            return None
        fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        return Family(int(fields["Tgid"]), int(fields["PPid"]))

    def is_in(self, number: int, cgroup: str) -> bool:
        """Whether the thread that has this number now is in *cgroup* or below it."""
        with self.pinned(number, cgroup) as thread:
            return thread is not None

    def roots(self, numbers: Iterable[int], there: AbstractSet[int]) -> Iterator[int]:
        """Yield those of *numbers* that none of the container's threads, *there*, has started: main threads.

        They are of its first process, and of those that were put into it later, as the kubelet's exec does it.
        """
        families = ((number, self.family(number)) for number in numbers)
        return (number for number, each in families if each and each.process == number and each.parent not in there)

    def starter(self, there: Iterable[int]) -> int:
        """Return the process that has started the container's first one; 0 if it is unknown."""
        numbers = sorted(there)
        families = map(self.family, self.roots(numbers, frozenset(numbers)))
        return next((each.parent for each in families if each and each.parent != _ADOPTS), 0)


@dataclass(frozen=True, slots=True)
class Pinned:
    """A thread of a container that cannot be mistaken for another one."""

    number: int
    folder: int
    """Its folder in /proc, open."""
    group: ContainerGroup | None
    threads: ContainerThreads

    def is_inside(self) -> bool:
        """Whether it exists and is in the container's cgroup, or in one below it."""
        try:
            return _is_within(_read("cgroup", self.folder), self.group)
        except OSError:  # ESRCH or ENOENT: it has ended
            return False

    def parent_of_stranger(self) -> int | None:
        """Return who has started the thread that has its number now, if it has ended and the other is no container's.

        0 if that is unknown. None as well if the other is in the same container: it is to have what all there have.
        """
        try:
            _read("cgroup", self.folder)
        except OSError:
            family = self.threads.family(self.number)
            below = self.group.below if self.group else ""
            if family and not self.threads.is_in(self.number, below):
                return family.parent if family.process == self.number else family.process
        return None


def _folders(path: str) -> Iterator[str]:
    """Yield *path* and the folders below it, `MOST_CGROUPS` at most."""
    waiting, seen = [path], 0
    while waiting and seen < MOST_CGROUPS:
        folder = waiting.pop()
        seen += 1
        yield folder
        try:
            # A cgroup without cgroups below it has two links: most have none, and listing its files takes far longer.
            if os.stat(folder).st_nlink > 2:  # noqa: PTH116 (paths would double the time)
                with os.scandir(folder) as found:
                    waiting += [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue  # removed meanwhile


def _numbers(path: str) -> list[int]:
    try:
        return [int(word) for word in _read(path, None, _LONGEST_LIST).split()]
    except OSError:  # the cgroup was removed, or is one of v2 that can have no threads
        return []


def _is_within(cgroups: str, group: ContainerGroup | None) -> bool:
    """Whether the file /proc/PID/cgroup with the content *cgroups* names *group* or one below it."""
    path = paths_by_controller(cgroups).get("" if group.unified else V1_CONTROLLER) if group else None
    return group is not None and path is not None and f"{path.strip('/')}/".startswith(f"{group.below.strip('/')}/")


def _read(path: str, folder: int | None, most: int = _LONGEST) -> str:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        content = b""
        while (chunk := os.read(file, most)) and len(content) < most:
            content += chunk
        return content.decode(errors="replace")
    finally:
        os.close(file)
