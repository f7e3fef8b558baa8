"""Queries to the daemon, or to its state on disk if it does not answer; with the options for their paths."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from criproxy.cli.daemon.client import DEFAULT_CONTROL_SOCKET, NoDaemon, ask
from criproxy.cli.options.path_type import PathOption
from criproxy.errors import CriproxyError

DEFAULT_STATE_DIR = Path("/var/lib/criproxy")
PATIENCE_S = 5.0
"""A daemon that does not answer for so long hangs; then the state on disk is more useful."""
PROMPT_S = 0.4
"""The time limit for completion at the prompt."""

Values = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class DaemonQueries:
    """The queries, with the paths of the daemon's socket and of its state on disk."""

    control_socket: str = DEFAULT_CONTROL_SOCKET
    state_dir: Path = DEFAULT_STATE_DIR
    host_root: Path = Path("/")

    def status(self, *, namespace: str = "", pod: str = "", exclusive: bool = False, check: bool = False) -> Values:
        """Return the answer to `status`; ``source`` is ``store`` if it does not come from the daemon.

        Raises:
            CriproxyError: neither the daemon nor its state is available.
        """
        wanted = {"namespace": namespace, "pod": pod, "exclusive": exclusive}
        try:
            answer: Values = ask(self.control_socket, "status", {**wanted, "check": check}, PATIENCE_S)
        except NoDaemon as error:
            from criproxy.api.views.status import Filter
            from criproxy.cli.daemon.stored import Stored

            chosen = Filter(namespace=namespace, pod=pod, exclusive=exclusive)
            return Stored(self.state_dir, self.host_root, error).status(chosen, check=check)
        return answer

    def explain(self, container: str) -> Values:
        """Return the answer to `explain`.

        Raises:
            CriproxyError: no container matches, or several do; or neither the daemon nor its state is available.
        """
        try:
            answer: Values = ask(self.control_socket, "explain", {"container": container}, PATIENCE_S)
        except NoDaemon as error:
            from criproxy.cli.daemon.stored import Stored

            return Stored(self.state_dir, self.host_root, error).explain(container)
        return answer

    def devices(self, config: Path | None = None) -> Values:
        """Return the answer to `devices`, from the machine and the state on disk if the daemon does not answer.

        Args:
            config: the policy file or directory with the device classes, used if no daemon answers.

        Raises:
            CriproxyError: the daemon refuses the request.
        """
        try:
            answer: Values = ask(self.control_socket, "devices", {}, PATIENCE_S)
        except NoDaemon as error:
            from criproxy.cli.daemon.stored import Stored

            return Stored(self.state_dir, self.host_root, error).devices(config)
        return answer

    def who(self, cpus: str) -> Values:
        """The answer of the control socket's `who`.

        Raises:
            UsageError: *cpus* is no list of CPUs.
            CriproxyError: neither the daemon nor its state can be asked.
        """
        from criproxy.api.views.who import read_cpus

        wanted = read_cpus(cpus)
        try:
            answer: Values = ask(self.control_socket, "who", {"cpus": cpus}, PATIENCE_S)
        except NoDaemon as error:
            from criproxy.cli.daemon.stored import Stored

            return Stored(self.state_dir, self.host_root, error).who(wanted)
        return answer

    def events(self, since_s: float = 0.0, after: int = 0, namespace: str = "") -> Values:
        """The answer of the control socket's `events`: what happened since a time, after the event with a number.

        Args:
            since_s: seconds since the epoch.
            after: 0 for all.
            namespace: if given, only events of its containers; a daemon of an earlier version ignores it.

        Raises:
            CriproxyError: neither the daemon nor its state can be asked.
        """
        wanted = {"since_s": since_s, "after": after}
        try:
            answer: Values = ask(self.control_socket, "events", {**wanted, "namespace": namespace}, PATIENCE_S)
        except NoDaemon as error:
            from criproxy.cli.daemon.stored import Stored

            return Stored(self.state_dir, self.host_root, error).events(since_s, after, namespace)
        return answer

    def names(self) -> list[str]:
        """Return NAMESPACE/POD/CONTAINER of all known containers; none if there is no quick answer."""
        try:
            found: list[str] = ask(self.control_socket, "names", timeout_s=PROMPT_S)
        except CriproxyError:
            from criproxy.store.reader import open_reader

            try:
                with open_reader(self.state_dir, PROMPT_S) as reader:
                    found = reader.titles()
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
    """Add the options of `DaemonQueries`."""
    for option in (
        click.option(
            "--host-root",
            type=PathOption(folder=True, exists=True),
            default="/",
            show_default=True,
            help="Directory that contains /sys and the cgroup tree, used if no daemon answers.",
        ),
        state_dir_option("The daemon's state on disk, used if no daemon answers."),
        control_socket_option,
    ):
        command = option(command)
    return command
