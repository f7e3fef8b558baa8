"""``criproxy bypass``: switches the bypass of the running daemon."""

from pathlib import Path

import click

from criproxy.cli.client import NoDaemon, ask, control_socket_option, state_dir_option
from criproxy.cli.options import format_option


@click.command(short_help="Switch the bypass on or off; while it is on, calls pass unchanged.")
@click.argument("state", type=click.Choice(["on", "off", "status"]))
@control_socket_option
@state_dir_option("The daemon's state on disk, to detect a daemon that runs but does not answer.")
@format_option
def command(state: str, control_socket: str, state_dir: Path, output: str) -> None:
    """Switch the bypass of the running daemon on or off, or show whether it is on.

    During a bypass, criproxy forwards every new call unchanged: it does not place, watch or refuse any container.
    Running containers keep their CPUs, but exclusive CPUs are not protected: new containers may run on any CPU. The
    bypass stays on until you switch it off or the daemon restarts. Then criproxy asks the runtime which containers are
    running, and protects exclusive CPUs again.

    After repeated internal failures, the daemon bypasses its policy automatically. In this mode ("automatic"),
    exclusive CPUs stay exclusive, and new containers share the other CPUs. The daemon keeps trying to leave this mode.
    """
    try:
        result = ask(control_socket, "bypass", {"state": state})
    except NoDaemon as error:
        from criproxy.store.holder import still_running

        unused = f"no process uses the state directory {state_dir}"
        raise NoDaemon(f"{error}; {still_running(state_dir, is_removed=error.is_removed) or unused}") from error
    if output == "json":
        import json

        click.echo(json.dumps(result))
        return
    since = f" ({result['mode']}) since {result['since']}: {result['reason']}" if result["bypass"] else ""
    click.echo(f"bypass is {'on' if result['bypass'] else 'off'}{since}")
