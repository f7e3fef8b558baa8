"""Finds all descendants of a program, including those that have left its process group, session and parent.

The kernel reparents an orphan to its nearest subreaper: after `adopt`, that is this process, and not the init process.
So no descendant of a program can escape.
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
    """Whether it is a zombie."""


def adopt(*, orphans: bool = True) -> None:
    """Make this process the subreaper of its descendants, or end that."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0)


def processes() -> dict[int, Entry]:
    """Return all processes by PID; reading /proc takes milliseconds."""
    return {int(name): entry for name in os.listdir(_PROC) if name.isdigit() if (entry := _entry(name))}  # noqa: PTH208


def started_by(pid: int, others: Collection[int], found: Mapping[int, Entry], own: int) -> Iterator[int]:
    """Yield the descendants of a program, including those of programs that ended before.

    Args:
        pid: the PID of the program, which may have ended.
        others: running programs that this process started in the same way, each in a separate session.
        found: all processes.
        own: the PID of this process; its other children are in its own session.
    """
    for each in found.keys() - {pid}:
        first = _first(each, found, own)
        if first == pid or (first is not None and _is_adopted(first, others, found, own)):
            yield each


def kill(pids: Collection[int], found: Mapping[int, Entry], own: int) -> None:
    """Kill processes, and reap those that were adopted."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            if not found[pid].is_over:
                os.kill(pid, signal.SIGKILL)
        if found[pid].parent == own:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _first(pid: int, found: Mapping[int, Entry], own: int) -> int | None:
    """Return the ancestor of a process, or itself, that is a child of this process; None for other processes."""
    for _ in found:  # bounded: parents may change while /proc is read
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
