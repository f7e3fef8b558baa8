"""The kernel's small files: how one is read and written, and which values it takes."""

import errno
import os
import stat
from abc import ABC, abstractmethod
from dataclasses import dataclass

from criproxy.host.files import parse_mask, read_once
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset


def read(path: str) -> str:
    """Return the content without the white space around it; raises OSError."""
    return read_once(path).decode(errors="replace").strip()


def write(path: str, text: str) -> None:
    """Write *text* at once; raises OSError with what the kernel has against it.

    EPERM if nobody may write the file. With its capabilities, root would hear that from the kernel, and not EACCES.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOCTTY)
    except PermissionError as error:
        if os.stat(path).st_mode & stat.S_IWUSR:  # noqa: PTH116 (thousands of paths are texts)
            raise
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), path) from error
    try:
        os.write(fd, f"{text}\n".encode())
    finally:
        os.close(fd)


class KernelFiles:
    """The kernel's own files; models of them are derived from it."""

    def read(self, path: str) -> str:
        """Return the content without the white space around it; raises OSError."""
        return read(path)

    def write(self, path: str, text: str) -> None:
        """Write *text* at once; raises OSError."""
        write(path, text)


class Value(ABC):
    """What a file shall have."""

    __slots__ = ()
    immovable_errnos: tuple[int, ...] = ()
    """The errors by which the kernel says that nobody can change this file, which is no trouble."""
    is_passive = False
    """Whether the file is not written, and only has what it had put back afterwards: the kernel changes it."""

    @abstractmethod
    def content(self, original: str) -> str:
        """Return what to write, where the file had *original* before."""

    @abstractmethod
    def holds(self, found: str) -> bool:
        """Whether a file that others have changed to *found* needs no repair."""

    def accepts(self, shown: str) -> bool:
        """Whether the kernel may show *shown* after the write."""
        return self.holds(shown)


@dataclass(frozen=True, slots=True)
class Text(Value):
    """One word or number."""

    text: str
    loose: bool = False
    """Whether the kernel may show something else than was written: a word for a number."""

    def content(self, original: str) -> str:
        """Return the text."""
        return self.text

    def holds(self, found: str) -> bool:
        """Whether it is there."""
        return found == self.text

    def accepts(self, shown: str) -> bool:
        """Whether it is there, or *loose*."""
        return self.loose or self.holds(shown)


class Companion(Value):
    """What the kernel changes with another file: the preference, with the governor."""

    is_passive = True

    def content(self, original: str) -> str:
        """Return what it had."""
        return original

    def holds(self, found: str) -> bool:
        """Whatever it is."""
        return True


@dataclass(frozen=True, slots=True)
class Affinity(Value):
    """CPUs to which interrupts may go: of those that the file had, the ones in *cpus*; if there are none, all these.

    Drivers and administrators give each queue of a device a CPU of its own: that stays wherever it can. irqbalance
    may choose among the CPUs as well.
    """

    cpus: CpuSet
    mask: bool = False
    """Whether the file has a hexadecimal mask instead of a list."""
    immovable_errnos: tuple[int, ...] = (errno.EIO, errno.EPERM)
    """What older and newer kernels answer for managed interrupts, such as those of the queues of disks."""

    def content(self, original: str) -> str:
        """Return the CPUs as the file has them."""
        before = self._parsed(original)
        cpus = (before & self.cpus) or self.cpus
        if cpus == before:
            return original
        return cpus_mask(cpus) if self.mask else format_cpuset(cpus)

    def holds(self, found: str) -> bool:
        """Whether no other CPU is in it."""
        cpus = self._parsed(found)
        return bool(cpus) and cpus <= self.cpus

    def _parsed(self, text: str) -> CpuSet:
        try:
            return parse_mask(text) if self.mask else parse_cpuset(text)
        except ValueError:
            return frozenset()


def cpus_mask(cpus: CpuSet) -> str:
    """Return the mask of *cpus*, with a comma between groups of 32 bits, as the kernel wants it."""
    digits = f"{sum(1 << cpu for cpu in cpus):x}"
    head, groups = len(digits) % 8, []
    if head:
        groups.append(digits[:head])
    groups += [digits[at : at + 8] for at in range(head, len(digits), 8)]
    return ",".join(groups)
