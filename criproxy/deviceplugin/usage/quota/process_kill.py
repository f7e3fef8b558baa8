"""Kills one process, and never another one that has got the same PID meanwhile."""

import errno
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from criproxy.deviceplugin.usage.processes import Processes
from criproxy.devices.usage.values import Process

FIRST_PID = 2
"""PID 1 is init, and 0 means a process group."""
_NO_PIDFD = (errno.ENOSYS, errno.EPERM, errno.EMFILE, errno.ENFILE)
"""Errors of a kernel without pidfds, of a seccomp filter, or if no file can be opened: then only the PID is used,
which leaves a moment in which it may become that of another process."""
_CAP_KILL = 1 << 5
_EFFECTIVE = re.compile(r"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Killed:
    """The outcome of an attempt to kill a process."""

    done: bool
    reason: str = ""
    """Why the process was not killed."""
    is_gone: bool = False
    """Whether the process had already exited."""


_GONE = Killed(done=False, reason="it has exited", is_gone=True)


def kill(processes: Processes, process: Process, container_id: str) -> Killed:
    """Send SIGKILL to *process* if it is still the same process in the same container."""
    if process.pid < FIRST_PID or process.pid == os.getpid():
        return Killed(done=False, reason=f"process {process.pid} must not be killed")
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        if error.errno not in _NO_PIDFD:
            return _GONE
        return _send(processes, process, container_id, None)
    try:  # from here on, no other process that gets the PID can get the signal
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
    """Whether this process may send signals to processes of other users."""
    found = _EFFECTIVE.search(Path("/proc/self/status").read_text(errors="replace"))
    return found is not None and bool(int(found[1], 16) & _CAP_KILL)
