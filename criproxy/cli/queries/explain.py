"""``criproxy explain``: the history of one container."""

import json
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from criproxy.cli.client import DEFAULT_CONTROL_SOCKET, NodeClient, places_options


def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of containers with a prefix, for the shell; none if there is no quick answer."""
    given = context.params
    places = NodeClient(
        given.get("control_socket") or DEFAULT_CONTROL_SOCKET, Path(given.get("state_dir") or NodeClient().state_dir)
    )
    return [CompletionItem(name) for name in places.names() if name.startswith(incomplete) and name.isprintable()]


@click.command(short_help="Show what a container requested, what it got, when and why.")
@click.argument("container", shell_complete=complete)
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@places_options
def command(*, container: str, output: str, **places: Any) -> None:  # noqa: ANN401 (click has checked them)
    """Show the history of CONTAINER, given as NAMESPACE/POD/CONTAINER or as the beginning of a container ID.

    The history shows what the kubelet requested and how criproxy interpreted it, what the policy granted and why, which
    containers the start had to wait for, every update and its result, resizes, changes by other programs, and when the
    container exited. A refused container has no ID, so use its name. The history is limited; the entries of ended
    containers are dropped first.
    """
    values = NodeClient(**places).ask("explain", {"container": container})
    if output == "json":
        click.echo(json.dumps(values))
        return
    from criproxy.cli.render.console import show
    from criproxy.cli.tables.explain import render

    show(render(values))
