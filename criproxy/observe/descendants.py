"""Finds everything that a program has started, also what has left its group, its session and its parent.

A process whose parent ends is given to the nearest ancestor that takes such: with `adopt` that is this process, and
not the first one of the machine. So nothing that a program starts can get away.
"""

import ctypes
import os
import signal
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Entry:
    """One process."""

    parent: int
    session: int
    is_over: bool = False
    """Whether it only waits for its parent to ask how it ended."""


def adopt(*, orphans: bool = True) -> None:
    """Be the parent of all descendants whose own parents end, from now on, or no more."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0)


def processes() -> dict[int, Entry]:
    """All that there are, by number; reads /proc, which takes milliseconds."""
    return {int(name): entry for name in os.listdir(_PROC) if name.isdigit() if (entry := _entry(name))}  # noqa: PTH208


def started_by(pid: int, others: Collection[int], found: Mapping[int, Entry], own: int) -> Iterator[int]:
    """The processes that a program has started, those of programs that ended before included.

    Args:
        pid: of the program; it may have ended.
        others: programs that run, and that this process started likewise: each in a session of its own.
        found: all processes.
        own: this process; what it starts otherwise is in its own session.
    """
    for each in found.keys() - {pid}:
        first = _first(each, found, own)
        if first == pid or (first is not None and _is_adopted(first, others, found, own)):
            yield each


def kill(pids: Collection[int], found: Mapping[int, Entry], own: int) -> None:
    """End processes, and ask of those that were adopted how they ended: then nothing is left of them."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            if not found[pid].is_over:
                os.kill(pid, signal.SIGKILL)
        if found[pid].parent == own:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _first(pid: int, found: Mapping[int, Entry], own: int) -> int | None:
    """The ancestor of a process, or itself, whose parent is this process; None: it descends from others."""
    for _ in found:  # one that is read while parents change may lead anywhere
        entry = found.get(pid)
        if entry is None or entry.parent == own:
            return pid if entry else None
        pid = entry.parent
    return None


def _is_adopted(pid: int, others: Collection[int], found: Mapping[int, Entry], own: int) -> bool:
    session = found[pid].session
    return pid not in others and session not in (*others, found[own].session)


def _entry(name: str) -> Entry | None:
    try:
        text = (_PROC / name / "stat").read_text(errors="replace")
    except OSError:
        return None  # it is gone
    state, parent, _, session = text.rpartition(")")[2].split()[:4]
    return Entry(int(parent), int(session), is_over=state in "ZX")
