"""A client of the daemon's control socket."""

import json
import socket
from collections.abc import Mapping
from typing import Any

from criproxy.errors import CriproxyError, UsageError, reason_of

TIMEOUT_S = 30.0
DEFAULT_CONTROL_SOCKET = "/run/criproxy/control.sock"


class NoDaemon(CriproxyError):
    """There is no answer on the control socket."""

    def __init__(self, text: str, *, was_asked: bool = False) -> None:
        super().__init__(text)
        self.was_asked = was_asked
        """Whether the command was sent, and may have been executed."""


def ask(path: str, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = TIMEOUT_S) -> Any:  # noqa: ANN401 - JSON
    """Send *command* to the daemon that listens on *path* and return its result.

    Raises:
        UsageError: the daemon answers that the request is wrong.
        NoDaemon: there is no answer within *timeout_s*.
        CriproxyError: the daemon refuses the request.
    """
    request = json.dumps({"command": command, "arguments": dict(arguments or {})}).encode() + b"\n"
    was_asked = False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(timeout_s)
            sock.connect(path)
            sock.sendall(request)
            was_asked = True
            with sock.makefile("rb") as answers:
                line = answers.readline()
    except OSError as error:
        raise NoDaemon(_explain(path, error, timeout_s), was_asked=was_asked) from error
    return _result(path, line)


def _explain(path: str, error: OSError, timeout_s: float) -> str:
    match error:
        case FileNotFoundError() | ConnectionRefusedError():
            return f"no criproxy daemon listens on {path}; start it, or name its socket with --control-socket"
        case PermissionError():
            return f"{path}: permission denied; this command needs root"
        case TimeoutError():
            return f"the daemon on {path} did not answer within {timeout_s:g} s"
        case _:
            return f"cannot ask the daemon on {path}: {reason_of(error)}"


def _result(path: str, line: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        answer = json.loads(line)
    except ValueError as error:
        text = f"the process listening on {path} is not a criproxy daemon, or it has exited: its answer is not JSON"
        raise NoDaemon(text, was_asked=True) from error
    if "error" in answer:
        wrong_use = answer.get("exit_status") == UsageError.exit_status
        raise (UsageError if wrong_use else CriproxyError)(answer["error"])
    return answer["result"]
