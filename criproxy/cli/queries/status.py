"""``criproxy status``: shows the state of the node once or repeatedly, or checks it."""

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from criproxy.cli.client import NodeClient, places_options
from criproxy.cli.render.lines import print_lines
from criproxy.cli.repeated_output import Ask, Render, Values, show_answer, watch_options
from criproxy.model.text.bounded import bounded

SETTLE_S, PAUSE_S = 5.0, 0.25
"""How long `--check` waits for updates in flight, and the pause between two queries."""


@click.command(short_help="Show the containers, their CPUs, and what is wrong.")
@click.option("-n", "--namespace", default="", help="Show only containers in this namespace.")
@click.option("--pod", default="", help="Show only containers of the pod with this name.")
@click.option("--exclusive", is_flag=True, help="Show only containers with exclusive CPUs.")
@click.option(
    "--refused", is_flag=True, help="Show all refused containers that criproxy remembers, not only the newest."
)
@click.option("--check", is_flag=True, help="Print only what is wrong; exit with status 1 if anything is.")
@watch_options
@places_options
def command(  # noqa: PLR0913 (one for each option)
    *,
    namespace: str,
    pod: str,
    exclusive: bool,
    refused: bool,
    check: bool,
    watch: bool,
    interval_s: float,
    output: str,
    **places: Any,  # noqa: ANN401 (click has checked them)
) -> None:
    """Show the containers of this node, what they requested, their CPUs, free CPUs, and what is wrong.

    The command asks the daemon. If no daemon answers, it shows the state that the daemon left on disk, and a notice.
    The CPUs are those that were granted; if a container does not run on them yet, its line shows this.

    --check prints one message for each problem, and exits with status 1 if there is one: a CPU that is exclusive to two
    containers, a container that is not where it should be, a failed update, a refused configuration, and more
    (docs/check.md).
    """
    if check and watch:
        raise click.UsageError("--check and --watch cannot be combined")
    asked = NodeClient(**places)
    if check:
        raise SystemExit(_check(asked, output))
    ask = partial(asked.ask, "status", {"namespace": namespace, "pod": pod, "exclusive": exclusive})
    chosen = " ".join(_chosen(namespace, pod, exclusive=exclusive))
    show_answer(ask, output, partial(_renderer, chosen, every_refusal=refused), watch=watch, interval_s=interval_s)


_NOTED = frozenset({"try", "withheld", "kubelet-reserved"})
"""Notices that ``--check`` prints although nothing is wrong: they change what the answer means, or explain refusals."""


def _check(places: NodeClient, output: str) -> int:
    """Print the problems; return the exit status."""
    values = settled(lambda: places.ask("status", {"check": True}))
    wrong = values["problems"] + values["under_way"]
    notes = [f"Note: {notice['text']}" for notice in values["notices"] if notice["kind"] in _NOTED]
    if output == "json":
        click.echo(json.dumps(values))
    elif wrong:
        for each in [*wrong, *notes]:
            print_lines(bounded(each))
    else:
        from criproxy.cli.render.topology_words import count

        totals = values["totals"]
        click.echo(
            f"All is well: {count(totals['containers'], 'container')}, {totals['exclusive']} with exclusive CPUs, "
            "all where they should be."
        )
        for note in notes:
            print_lines(bounded(note))
    return 1 if wrong else 0


def settled(ask: Ask) -> Values:
    """Return the answer of *ask* when no update is in flight, or after a timeout."""
    deadline_s = time.monotonic() + SETTLE_S
    while True:
        values = ask()
        if values["problems"] or not values["under_way"] or time.monotonic() > deadline_s:
            return values
        time.sleep(PAUSE_S)


def _chosen(namespace: str, pod: str, *, exclusive: bool) -> Iterator[str]:
    """Describe the selected containers."""
    if pod:
        yield f"of pods named {pod}"
    if namespace:
        yield f"in namespace {namespace}"
    if exclusive:
        yield "with exclusive CPUs"


def _renderer(chosen: str, *, every_refusal: bool) -> Render:
    from criproxy.cli.tables.status import render

    return partial(render, chosen=chosen, every_refusal=every_refusal)
