"""Installations that fail or are killed at a chosen change of the node: ``python -m tests.install.attempts``.

It reads requests from standard input, a line of JSON each, forks a process for each, which is quicker than starting
Python anew, and answers with the process's exit status. A process counts its changes of files and its commands by
Python's audit events; at the chosen one, it kills itself or gets an error of the system.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import criproxy.config.load
import criproxy.cri.runtime  # noqa: F401 - as the line before: an installation would import it anew in each process
from criproxy.cli.operate.install import node_reader
from criproxy.errors import CriproxyError
from criproxy.install.host import Host
from criproxy.install.operate import Operator
from criproxy.install.plan import Request
from tests.install.nodes import MadeUpNode

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.utime"}
_COMMANDS = {"enable", "disable", "restart", "daemon-reload", "release", "status"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NEVER = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a process does."""

    folder: str
    kind: str
    action: str = "install"
    fault: str = ""
    """``kill``, ``error`` of the disk, or ``interrupt`` as by Ctrl-C."""
    at: int = NEVER
    """The number of the change at which the fault happens, from 1 on."""
    timeout_s: float = 5.0
    kubeconfig: str = ""
    runtime: str = ""
    policy: str | None = None
    http: str | None = None
    page_token: str = ""
    serve: Mapping[str, str] | None = None
    controls: bool = False
    nri: bool = False
    dry_run: bool = False
    force: bool = False
    brings: bool = True
    """Whether the program has its own virtual environment and units with it."""


class Attempts:
    """The process that forks."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.install.attempts"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, **values: object) -> tuple[int, str]:
        """Return the exit status of an `Attempt`, negative for a signal, and what was told."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(values)}\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        return status, (Path(str(values["folder"])) / "told").read_text()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def main() -> None:
    """Fork a process for each request."""
    for line in sys.stdin:
        attempt = Attempt(**json.loads(line))
        pid = os.fork()
        if pid == 0:
            os._exit(_in_child(attempt))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


def _in_child(attempt: Attempt) -> int:
    with (Path(attempt.folder) / "told").open("w", buffering=1) as told:
        try:
            _carry_out(attempt, lambda line: print(line, file=told))
        except (OSError, CriproxyError) as error:
            print(f"Error: {error}", file=told)
            return 1
        except BaseException:  # noqa: BLE001 - the process ends with os._exit
            traceback.print_exc(file=told)
            return 3
    return 0


def _carry_out(attempt: Attempt, tell: Callable[[str], None]) -> None:
    node = MadeUpNode(Path(attempt.folder), attempt.kind)
    os.environ["PATH"] = f"{node.programs}:{os.environ['PATH']}"
    if attempt.fault:
        _plan_fault(str(node.root), attempt)
    payload = node.payload if attempt.brings else None
    operator = Operator(Host(node.root), tell, timeout_s=attempt.timeout_s, payload=payload)
    if attempt.action == "install":
        page, serve = (attempt.http, attempt.page_token), attempt.serve
        request = Request(
            *(attempt.runtime, attempt.policy, attempt.kubeconfig, *page, serve, attempt.controls, attempt.nri),
            node_reader(Path(attempt.kubeconfig)) if attempt.kubeconfig else None,
        )
        operator.install(request, dry_run=attempt.dry_run)
    else:
        operator.uninstall(dry_run=attempt.dry_run, force=attempt.force)


def _plan_fault(root: str, attempt: Attempt) -> None:
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if not _is_change(root, event, arguments):
            return
        count += 1
        if count == attempt.at:
            if attempt.fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise (
                KeyboardInterrupt if attempt.fault == "interrupt" else OSError(errno.ENOSPC, "No space left on device")
            )

    sys.addaudithook(hook)


def _is_change(root: str, event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "subprocess.Popen":
        return bool(_COMMANDS & {str(word) for word in arguments[1]})
    if event == "open":
        path, _, flags = arguments
        return str(path).startswith(root) and bool(flags & _WRITING)
    return event in _CHANGES and str(arguments[0]).startswith(root)


if __name__ == "__main__":
    main()
