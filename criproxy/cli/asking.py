"""How things are: asked of the daemon, else read from the state that it left. Also the options that say where."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from criproxy.cli.client import DEFAULT_CONTROL_SOCKET, NoDaemon, ask
from criproxy.cli.place import Place
from criproxy.errors import CriproxyError

DEFAULT_STATE_DIR = Path("/var/lib/criproxy")
PATIENCE_S = 5.0
"""A daemon that does not answer for so long is stuck: what is on disk says more then."""
PROMPT_S = 0.4
"""What completion may take: somebody sits at the prompt."""

Values = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Places:
    """Where to ask, and where to read if nobody answers."""

    control_socket: str = DEFAULT_CONTROL_SOCKET
    state_dir: Path = DEFAULT_STATE_DIR
    host_root: Path = Path("/")

    def status(self, *, namespace: str = "", pod: str = "", exclusive: bool = False, check: bool = False) -> Values:
        """The answer of the control socket's `status`; with ``source`` ``store`` where the daemon did not give it.

        Raises:
            CriproxyError: neither the daemon nor its state can be asked.
        """
        wanted = {"namespace": namespace, "pod": pod, "exclusive": exclusive}
        try:
            answer: Values = ask(self.control_socket, "status", {**wanted, "check": check}, PATIENCE_S)
        except NoDaemon as error:
            from criproxy.cli.stored import Stored
            from criproxy.views.status import Filter

            chosen = Filter(namespace=namespace, pod=pod, exclusive=exclusive)
            return Stored(self.state_dir, self.host_root, error).status(chosen, check=check)
        return answer

    def explain(self, container: str) -> Values:
        """The answer of the control socket's `explain`.

        Raises:
            CriproxyError: nobody is meant, or more than one; or neither the daemon nor its state can be asked.
        """
        try:
            answer: Values = ask(self.control_socket, "explain", {"container": container}, PATIENCE_S)
        except NoDaemon as error:
            from criproxy.cli.stored import Stored

            return Stored(self.state_dir, self.host_root, error).explain(container)
        return answer

    def devices(self, config: Path | None = None) -> Values:
        """The answer of the control socket's `devices`; where the daemon gives none, what machine and state tell.

        Args:
            config: the policy file or directory that names classes of devices, for where no daemon answers.

        Raises:
            CriproxyError: the daemon's answer is no.
        """
        try:
            answer: Values = ask(self.control_socket, "devices", {}, PATIENCE_S)
        except NoDaemon as error:
            from criproxy.cli.stored import Stored

            return Stored(self.state_dir, self.host_root, error).devices(config)
        return answer

    def who(self, cpus: str) -> Values:
        """The answer of the control socket's `who`.

        Raises:
            UsageError: *cpus* is no list of CPUs.
            CriproxyError: neither the daemon nor its state can be asked.
        """
        from criproxy.views.who import read_cpus

        wanted = read_cpus(cpus)
        try:
            answer: Values = ask(self.control_socket, "who", {"cpus": cpus}, PATIENCE_S)
        except NoDaemon as error:
            from criproxy.cli.stored import Stored

            return Stored(self.state_dir, self.host_root, error).who(wanted)
        return answer

    def events(self, since_s: float = 0.0, after: int = 0) -> Values:
        """The answer of the control socket's `events`: what happened since a time, after the event with a number.

        Raises:
            CriproxyError: neither the daemon nor its state can be asked.
        """
        try:
            answer: Values = ask(self.control_socket, "events", {"since_s": since_s, "after": after}, PATIENCE_S)
        except NoDaemon as error:
            from criproxy.cli.stored import Stored

            return Stored(self.state_dir, self.host_root, error).events(since_s, after)
        return answer

    def names(self) -> list[str]:
        """NAMESPACE/POD/CONTAINER of all containers that are known; none where nobody answers quickly."""
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


def _given(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The *value*; an empty one is a script's variable that is not set."""
    if not value:
        raise click.BadParameter("must not be empty", ctx, param)
    return value


control_socket_option = click.option(
    "--control-socket",
    default=DEFAULT_CONTROL_SOCKET,
    callback=_given,
    show_default=True,
    metavar="PATH",
    help="Control socket of the daemon.",
)
"""For commands that ask the daemon; those that can do without it have all of `places_options`."""


def state_dir_option(text: str) -> Callable[[F], F]:
    """The option that says where the daemon's state is; *text* tells what for."""
    kind = Place(folder=True)
    return click.option("--state-dir", type=kind, default=DEFAULT_STATE_DIR, show_default=True, help=text)


def places_options(command: F) -> F:
    """The options that say where to ask."""
    for option in (
        click.option(
            "--host-root",
            type=Place(folder=True),
            default="/",
            show_default=True,
            help="Directory that contains /sys and the cgroup tree, used if no daemon answers.",
        ),
        state_dir_option("The daemon's state on disk, used if no daemon answers."),
        control_socket_option,
    ):
        command = option(command)
    return command
