"""``criproxy events``: what happened on the node, newest last."""

from __future__ import annotations

import json
import signal
import sys
import time
from contextlib import suppress
from typing import Any

import click

from criproxy.cli.client import NodeClient, places_options
from criproxy.cli.options import duration, format_option
from criproxy.cli.render.console import print_lines
from criproxy.cli.repeated_output import leaving_on
from criproxy.errors import CriproxyError
from criproxy.model.text.amounts import format_seconds
from criproxy.model.text.bounded import bounded_text, printable

PAUSE_S = 1.0
"""Between two looks of `--follow`."""
_MORE = (
    "there were more events than fit into one answer; use a shorter time with --since, --namespace for one namespace, "
    "or explain for one container"
)


@click.command(short_help="Show what happened on the node.")
@click.option(
    *("--since", "since_s"),
    default="1h",
    type=duration(),
    show_default=True,
    metavar="DURATION",
    help="Show only events that are not older than this, such as 90s, 10m or 2h.",
)
@click.option("-n", "--namespace", default="", help="Show only events of containers in this namespace.")
@click.option("-f", "--follow", is_flag=True, help="After that, print new events until Ctrl-C.")
@format_option
@places_options
def command(
    *,
    since_s: float,
    namespace: str,
    follow: bool,
    output: str,
    **places: Any,  # noqa: ANN401 (click checks them)
) -> None:
    """Show what happened to the containers of this node, one line for each event, the newest last.

    Events are placements, refusals, starts, updates, resizes, changes by other programs, unhealthy cards, exits, and
    changes that concern the whole node. With JSON, each line is an object. The history is limited; `criproxy explain`
    shows more about one container. The command asks the daemon. If no daemon answers, the command reads the history
    that the daemon left on disk.
    """
    asked = NodeClient(**places)
    values = asked.ask("events", {"since_s": time.time() - since_s, "namespace": namespace})
    _show(values, output)
    if not values["events"] and output == "table":
        where = f" in namespace {namespace}" if namespace else ""
        print_lines(bounded_text(f"No events{where} in the last {format_seconds(since_s)}."))
    if follow:
        with suppress(KeyboardInterrupt), leaving_on(signal.SIGTERM):
            _follow(asked, values, output, namespace)


def _show(values: dict[str, Any], output: str, told: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Print the events of an answer, and what is wrong if that was not *told* before; returns what is told now."""
    wrong = tuple(notice["kind"] for notice in values["notices"])
    for notice in values["notices"]:
        if notice["kind"] not in told:
            print_lines(f"WRONG: {bounded_text(notice['text'])}", err=True)
    if values["has_more"]:
        print_lines(f"Note: {_MORE}", err=True)
    for event in values["events"]:
        if output == "json":
            click.echo(json.dumps(event))
        else:
            click.secho(line(event), fg="red" if event["kind"] in BAD else None)
    return wrong


def _follow(asked: NodeClient, values: dict[str, Any], output: str, namespace: str) -> None:
    """Print what happens from now on, for ever; what cannot be asked now may be later."""
    last, told = values["last"], tuple(notice["kind"] for notice in values["notices"])
    while True:
        sys.stdout.flush()
        time.sleep(PAUSE_S)
        try:
            values = asked.ask("events", {"after": last, "namespace": namespace})
        except CriproxyError as error:
            if "error" not in told:
                print_lines(f"WRONG: {bounded_text(str(error))}; trying again", err=True)
            told = ("error",)
        else:
            told = _show(values, output, told)
            last = values["last"]


BAD = frozenset({"refused", "passed", "failed", "lost", "drift", "unknown", "unhealthy", "quota"})
"""Kinds of events that somebody who looks for a mistake should see first."""
MAX_CHARS = 1_000
"""Of one line."""


def line(event: dict[str, Any]) -> str:
    """One event on one line; what a terminal would act on in its texts is shown instead."""
    about = f"{bounded_text(event['container'], 200)}: " if event["container"] else ""
    said = "; ".join(event["sentences"]).removeprefix(f"{event['container']} ")
    text = bounded_text(f"{about}{said}", MAX_CHARS)
    return printable(f"{event['time']}  {event['kind']:<9}  {text}")
