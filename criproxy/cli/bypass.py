"""``criproxy bypass``: makes the running proxy a pure splice, or a placing one again."""

from pathlib import Path

import click

from criproxy.cli.asking import control_socket_option, state_dir_option
from criproxy.cli.client import NoDaemon, ask


@click.command(short_help="Let every call pass untouched, or place containers again.")
@click.argument("state", type=click.Choice(["on", "off", "status"]))
@control_socket_option
@state_dir_option("The daemon's state: where it does not answer, this tells whether it runs.")
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(state: str, control_socket: str, state_dir: Path, output: str) -> None:
    """Switch the bypass of the running daemon on or off, or show it.

    While it is on, every new call passes between kubelet and runtime byte for byte: no container is placed,
    watched or refused. Containers keep the CPUs they have, but nobody's exclusive CPUs are guarded: new containers
    may run on all of them. It stays on until it is switched off or the daemon restarts; then the runtime is asked
    what runs, and exclusive CPUs are exclusive again.

    The daemon also bypasses its policy by itself after repeated failures of its own. That mode, "automatic", keeps
    exclusive CPUs exclusive, and new containers share the others; the daemon tries to end it by
    itself.
    """
    try:
        result = ask(control_socket, "bypass", {"state": state})
    except NoDaemon as error:
        raise NoDaemon(f"{error}; {_daemon(state_dir)}") from error
    if output == "json":
        import json

        click.echo(json.dumps(result))
        return
    since = f" ({result['mode']}) since {result['since']}: {result['reason']}" if result["bypass"] else ""
    click.echo(f"bypass is {'on' if result['bypass'] else 'off'}{since}")


def _daemon(state_dir: Path) -> str:
    """Whether a daemon runs that does not answer."""
    from criproxy.cli.stored import holding

    if holder := holding(state_dir):
        return f"process {holder} has the state directory {state_dir}: it hangs, or listens on another control socket"
    return f"no process has the state directory {state_dir}"
