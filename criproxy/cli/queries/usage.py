"""``criproxy usage``: shows how much each container uses of which card."""

from functools import partial

import click

from criproxy.cli.client import PATIENCE_S, ask, control_socket_option
from criproxy.cli.repeated_output import Render, Values, show_answer, watch_options


@click.command(short_help="Show how much of each card the containers use.")
@click.option("--history", is_flag=True, help="Also show the last hour, minute by minute.")
@watch_options
@control_socket_option
def command(*, history: bool, watch: bool, interval_s: float, output: str, control_socket: str) -> None:
    """Show how much memory and compute of each card is in use, and how much of its quota each container uses.

    The command asks the daemon, to which the device plugin reports the usage. If no daemon answers, it fails, because
    the usage is not stored on disk. Processes outside of containers are shown as a sum for each card. For containers
    over their quota, the list shows since when they have exceeded it.
    """
    show_answer(partial(_query, control_socket, history=history), output, _renderer, watch=watch, interval_s=interval_s)


def _query(control_socket: str, *, history: bool) -> Values:
    answer: Values = ask(control_socket, "usage", {"history": history}, PATIENCE_S)
    return answer


def _renderer() -> Render:
    from criproxy.cli.tables.usage import render

    return render
