"""Commands for child processes: they end with this process, and no module comes from the current directory.

Run as ``tether.py PARENT PROGRAM ARGUMENT…``, this file becomes PROGRAM. It imports only the standard library, since it
runs without the packages of this one.
"""

import ctypes
import errno
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_CANNOT_RUN = 126
"""The exit status that shells use for this."""


def python(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module of ours, wherever this process was started."""
    return (sys.executable, "-P", "-m", module, *arguments)


def tethered(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that becomes *command*, which is killed when the thread that has started it ends.

    The kernel does that, so it also happens if this process is killed.

    Raises:
        OSError: there is no such program, or it is not executable.
    """
    if shutil.which(command[0]) is None:
        number = errno.EACCES if Path(command[0]).exists() else errno.ENOENT
        raise OSError(number, os.strerror(number), command[0])
    return (sys.executable, "-I", "-S", __file__, str(os.getpid()), *command)


def end_with(parent: int) -> None:
    """Let this process be killed when its parent, the process *parent*, ends; at once if it has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Become the program of the command line; return only if that is not possible."""
    parent, *command = sys.argv[1:]
    end_with(int(parent))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 (no shell is wanted)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be run: {error.strerror}\n")
    return _CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main())
