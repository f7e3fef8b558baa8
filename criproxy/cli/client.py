"""The commands' client of the daemon's control socket, and the options that say where a daemon and its state are."""

import os
import select
import socket
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from criproxy.cli.options import PathOption, host_root_option
from criproxy.errors import CriproxyError, UsageError, reason_of
from criproxy.process.control_protocol import answer_of, request_of

TIMEOUT_S = 30.0
PATIENCE_S = 5.0
"""A daemon that does not answer a query for so long hangs; then the state on disk is more useful."""
PROMPT_S = 0.4
"""The time limit for completion at the prompt."""
SILENT_S = 5.0
"""After so long without an answer, a note on the terminal says how long the command waits."""
DEFAULT_CONTROL_SOCKET = "/run/criproxy/control.sock"
DEFAULT_STATE_DIR = Path("/var/lib/criproxy")
F = TypeVar("F", bound=Callable[..., Any])
Values = dict[str, Any]

_REMOVED = (
    "the file of the socket {} is gone, although a process listens there: criproxy makes it again within 5 s; if it is "
    "still gone then, restart criproxy"
)

_LISTENS = " 00010000 "
"""The flags of a socket that accepts connections, in /proc/net/unix."""


class NoDaemon(CriproxyError):
    """There is no answer on the control socket."""

    def __init__(
        self, text: str, *, was_asked: bool = False, is_denied: bool = False, is_removed: bool = False
    ) -> None:
        super().__init__(text)
        self.was_asked = was_asked
        """Whether the command was sent, and may have been executed."""
        self.is_denied = is_denied
        """Whether this user may not connect; a daemon may be running."""
        self.is_removed = is_removed
        """Whether a process listens to which no client can connect, because the socket's file was removed."""


class RemoteDaemon(Protocol):
    """The daemon of another machine, which is not reached through a socket of this one."""

    def ask(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """Return the result of a query, in a time that it limits itself; raises as `client.ask`, but no `NoDaemon`."""


Daemon = str | RemoteDaemon
"""The path of a control socket, or what reaches another machine's daemon."""


def ask(
    daemon: Daemon,
    command: str,
    arguments: Mapping[str, Any] | None = None,
    timeout_s: float = TIMEOUT_S,
    *,
    notes_delay: bool = True,
) -> Any:  # noqa: ANN401 - JSON
    """Send *command* to *daemon* and return its result.

    Args:
        daemon: the path of its control socket; or the daemon of another machine, which has limits of its own.
        command: its name.
        arguments: those of the command.
        timeout_s: how long to wait for an answer.
        notes_delay: whether to print a note on a terminal after `SILENT_S` without an answer.

    Raises:
        UsageError: the daemon answers that the request is wrong.
        NoDaemon: there is no answer within *timeout_s*.
        CriproxyError: the daemon refuses the request.
    """
    if not isinstance(daemon, str):
        return daemon.ask(command, arguments or {})
    request, was_asked = request_of(command, arguments or {}), False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(timeout_s)
            sock.connect(daemon)
            sock.sendall(request)
            was_asked = True
            if notes_delay:
                sock.settimeout(_wait(sock, daemon, timeout_s))
            with sock.makefile("rb") as answers:
                line = answers.readline()
    except OSError as error:
        is_denied, is_gone = isinstance(error, PermissionError), isinstance(error, FileNotFoundError)
        is_removed = is_gone and _is_listening(daemon)
        text = _REMOVED.format(daemon) if is_removed else _explain(daemon, error, timeout_s)
        raise NoDaemon(text, was_asked=was_asked, is_denied=is_denied, is_removed=is_removed) from error
    return _result(daemon, line)


@dataclass(frozen=True, slots=True)
class NodeClient:
    """Asks the daemon about its node or, if it does not answer, the state that it left on disk."""

    control_socket: Daemon = DEFAULT_CONTROL_SOCKET
    state_dir: Path = DEFAULT_STATE_DIR
    host_root: Path = Path("/")
    """Contains /sys and the cgroup tree, used if no daemon answers."""
    config: Path | None = None
    """The policy file or directory with the device classes, used if no daemon answers."""

    def ask(self, command: str, arguments: Mapping[str, Any] | None = None) -> Values:
        """Return the answer to a query; its ``source`` is not ``daemon`` if it comes from the disk.

        Raises:
            UsageError: an argument is wrong.
            CriproxyError: the answer is an error; or neither the daemon nor its state is available.
        """
        wanted = arguments or {}
        try:
            answer: Values = ask(self.control_socket, command, wanted, PATIENCE_S)
        except NoDaemon as error:
            from criproxy.api.stored import StoredNode

            stored = StoredNode(
                self.state_dir, self.host_root, str(error), is_removed=error.is_removed, config=self.config
            )
            return stored.answer(command, wanted)
        return answer

    def names(self) -> list[str]:
        """Return NAMESPACE/POD/CONTAINER of all known containers; none if there is no quick answer."""
        try:
            found: list[str] = ask(self.control_socket, "names", timeout_s=PROMPT_S)
        except CriproxyError:
            from criproxy.store.history import titles
            from criproxy.store.reader import open_reader

            try:
                with open_reader(self.state_dir, PROMPT_S) as reader:
                    found = titles(reader.connection)
            except CriproxyError:
                found = []
        return found


def _path(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Take a path, or ``unix:///PATH``; refuse an empty *value*, which comes from an unset variable in a script."""
    if not value:
        raise click.BadParameter("must not be empty", ctx, param)
    if not value.startswith("unix:"):
        return value
    from criproxy.wire.sockets import unix_path

    return unix_path(value, "--control-socket")


control_socket_option = click.option(
    "--control-socket",
    default=DEFAULT_CONTROL_SOCKET,
    callback=_path,
    show_default=True,
    metavar="PATH",
    help="Control socket of the daemon.",
)
"""For commands that need the daemon; commands that do not have all of `places_options`."""


def state_dir_option(text: str) -> Callable[[F], F]:
    """Return the option for the daemon's state directory, with *text* as its help."""
    kind = PathOption(folder=True)
    return click.option("--state-dir", type=kind, default=DEFAULT_STATE_DIR, show_default=True, help=text)


def places_options(command: F) -> F:
    """Add the options of `NodeClient`."""
    for option in (
        host_root_option("Directory that contains /sys and the cgroup tree, used if no daemon answers.", exists=True),
        state_dir_option("The daemon's state on disk, used if no daemon answers."),
        control_socket_option,
    ):
        command = option(command)
    return command


def _wait(sock: socket.socket, path: str, timeout_s: float) -> float:
    """Wait for an answer for `SILENT_S` and say if there is none yet; return how much of *timeout_s* is left.

    Only a terminal gets that note: scripts read the final output of a command.
    """
    if timeout_s <= SILENT_S or not sys.stderr.isatty():
        return timeout_s
    answered = select.poll()  # unlike select.select, it takes any descriptor
    answered.register(sock, select.POLLIN)
    if answered.poll(1000 * SILENT_S):
        return timeout_s
    from criproxy.cli.render.console import print_lines

    left_s = timeout_s - SILENT_S
    print_lines(f"Note: the daemon on {path} has not answered yet; this command waits for {left_s:g} s more", err=True)
    return left_s


def _explain(path: str, error: OSError, timeout_s: float) -> str:
    match error:
        case ConnectionRefusedError() if what := _no_socket(path):
            return f"{path} is {what}, not a socket; name the daemon's socket with --control-socket"
        case FileNotFoundError() | ConnectionRefusedError():
            return f"no criproxy daemon listens on {path}; start it, or name its socket with --control-socket"
        case PermissionError():
            return f"{path}: permission denied; this command needs root"
        case TimeoutError():
            return f"the daemon on {path} did not answer within {timeout_s:g} s"
        case _:
            return f"cannot ask the daemon on {path}: {reason_of(error)}"


def _is_listening(path: str) -> bool:
    """Whether a process listens on *path*, whatever has become of the file."""
    try:
        lines = os.fsdecode(Path("/proc/net/unix").read_bytes()).splitlines()
    except OSError:
        return False
    return any(_LISTENS in line and line.endswith(f" {path}") for line in lines)


def _no_socket(path: str) -> str:
    """Return what is at *path*; empty if it is a socket, or unknown."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except (OSError, ValueError):
        return ""
    return "" if stat.S_ISSOCK(mode) else "a directory" if stat.S_ISDIR(mode) else "a file"


def _result(path: str, line: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        answer = answer_of(line)
    except ValueError as error:
        text = f"the process listening on {path} is not a criproxy daemon, or it has exited: {error}"
        if line[3:4] in (b"\x04", b"\x07") and line[5:9] == bytes(4):  # SETTINGS or GOAWAY of HTTP/2
            text = f"{path} is a CRI socket, such as criproxy has for the kubelet; name the daemon's control socket"
            text = f"{text} with --control-socket, such as {DEFAULT_CONTROL_SOCKET}"
        raise NoDaemon(text, was_asked=True) from error
    if "result" in answer:
        return answer["result"]
    wrong_use = answer.get("exit_status") == UsageError.exit_status
    raise (UsageError if wrong_use else CriproxyError)(answer["error"])
