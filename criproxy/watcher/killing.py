"""Kills one process that was chosen before, and no other one that has its number by now."""

import errno
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from criproxy.usage.values import Process
from criproxy.watcher.processes import Processes

FIRST_PID = 2
"""The first is init, and 0 means a whole group."""
_NO_PIDFD = (errno.ENOSYS, errno.EPERM, errno.EMFILE, errno.ENFILE)
"""Of a kernel, a filter of system calls, or where no file can be opened: then it goes without, a moment less surely."""
_CAP_KILL = 1 << 5
_EFFECTIVE = re.compile(r"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Killed:
    """What came of it."""

    done: bool
    reason: str = ""
    """Why it was not done."""
    is_gone: bool = False
    """Whether there was nothing left to do."""


_GONE = Killed(done=False, reason="it has exited", is_gone=True)


def kill(processes: Processes, process: Process, container_id: str) -> Killed:
    """Send SIGKILL to *process* if it still is the one that was seen in the container."""
    if process.pid < FIRST_PID or process.pid == os.getpid():
        return Killed(done=False, reason=f"process {process.pid} must not be killed")
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        if error.errno not in _NO_PIDFD:
            return _GONE
        return _send(processes, process, container_id, None)
    try:  # from here on the number cannot become that of another process that gets the signal
        return _send(processes, process, container_id, descriptor)
    finally:
        os.close(descriptor)


def _send(processes: Processes, process: Process, container_id: str, descriptor: int | None) -> Killed:
    if not processes.is_same(process, container_id):
        return _GONE
    try:
        if descriptor is None:
            os.kill(process.pid, signal.SIGKILL)
        else:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return _GONE
    except OSError as error:
        hint = "; its unit needs CAP_KILL" if error.errno == errno.EPERM else ""
        return Killed(done=False, reason=f"{error.strerror}{hint}")
    return Killed(done=True)


def may_kill() -> bool:
    """Whether this process may send signals to those of other users."""
    found = _EFFECTIVE.search(Path("/proc/self/status").read_text(errors="replace"))
    return found is not None and bool(int(found[1], 16) & _CAP_KILL)
