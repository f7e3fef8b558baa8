"""``criproxy usage``: who uses how much of which card."""

from functools import partial

import click

from criproxy.cli.asking import PATIENCE_S, control_socket_option
from criproxy.cli.client import ask
from criproxy.cli.watching import Render, Values, show_answer, watch_options


@click.command(short_help="Show how much of the cards the containers use.")
@click.option("--history", is_flag=True, help="Show the last hour, too: a point for each minute.")
@watch_options
@control_socket_option
def command(*, history: bool, watch: bool, interval_s: float, output: str, control_socket: str) -> None:
    """Show the memory and computing units of each card in use, by container, and what each container was granted.

    The daemon has this from the watcher of the device plugin, and keeps it in memory: if no daemon answers, there is
    nothing to show. Processes outside of containers are shown as a sum for each card. Containers that are over their
    quota are marked with the time since when they are.
    """
    show_answer(partial(_ask, control_socket, history=history), output, _renderer, watch=watch, interval_s=interval_s)


def _ask(control_socket: str, *, history: bool) -> Values:
    answer: Values = ask(control_socket, "usage", {"history": history}, PATIENCE_S)
    return answer


def _renderer() -> Render:
    from criproxy.cli.render.usage import render

    return render
