"""``criproxy who``: which containers may run on a CPU."""

import json
from typing import Any

import click

from criproxy.cli.client import NodeClient, places_options


@click.command(short_help="Show which containers may run on a CPU.")
@click.argument("cpus", nargs=-1, required=True, metavar="CPU...")
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@places_options
def command(*, cpus: tuple[str, ...], output: str, **places: Any) -> None:  # noqa: ANN401 (click has checked them)
    """Show which containers may run on each CPU, exclusively or not, and whether it is reserved, isolated or kept.

    CPU is a number or a list in kernel notation, such as 3 or 0-7,16. CPUs with identical details share one row. A
    container is also listed if it belongs on a CPU but is not there yet, or if it is still there but belongs elsewhere.
    The command asks the daemon. If no daemon answers, it reads the state that the daemon left on disk.
    """
    from criproxy.api.views.who import read_cpus

    text = ",".join(cpus)
    read_cpus(text)  # here: what is no list of CPUs is wrong with and without a daemon
    values = NodeClient(**places).ask("who", {"cpus": text})
    if output == "json":
        click.echo(json.dumps(values))
        return
    from criproxy.cli.render.console import show
    from criproxy.cli.tables.who import render

    show(render(values))
