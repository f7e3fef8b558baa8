"""``criproxy explain``: the history of one container."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from criproxy.cli.client import DEFAULT_CONTROL_SOCKET, NodeClient, places_options
from criproxy.cli.options import format_option
from criproxy.cli.queries.devices import quota_of
from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render import words
from criproxy.cli.render.candidates import render_choices
from criproxy.cli.render.class_words import container_lines
from criproxy.cli.render.console import HEADING, QUIET, TROUBLE, indented, print_answer, section
from criproxy.cli.render.topology_words import count
from criproxy.model.cpuset import cpus_text
from criproxy.model.text.bounded import bounded_text


def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of containers with a prefix, for the shell; none if there is no quick answer."""
    given = context.params
    places = NodeClient(
        given.get("control_socket") or DEFAULT_CONTROL_SOCKET, Path(given.get("state_dir") or NodeClient().state_dir)
    )
    return [CompletionItem(name) for name in places.names() if name.startswith(incomplete) and name.isprintable()]


@click.command(short_help="Show what a container requested, what it got, when and why.")
@click.argument("container", shell_complete=complete)
@format_option
@places_options
def command(*, container: str, output: str, **places: Any) -> None:  # noqa: ANN401 (click has checked them)
    """Show the history of CONTAINER, given as NAMESPACE/POD/CONTAINER or as the beginning of a container ID.

    The history shows what the kubelet requested and how criproxy interpreted it, what the policy granted and why, which
    containers the start had to wait for, every update and its result, resizes, changes by other programs, and when the
    container exited. A refused container has no ID, so use its name. The history is limited; the entries of ended
    containers are dropped first.
    """
    print_answer(NodeClient(**places).ask("explain", {"container": container}), output, render)


Values = dict[str, Any]
WHY = {"refused": "Why it was refused", "gone": "Why it ran there", "exited": "Why it ran there"}
MAX_EARLIER_CHARS = 500
"""The maximum length of the text about each of up to a hundred other containers of the same name."""
BAD = frozenset({"refused", "passed", "failed", "lost", "drift", "unknown"})
"""The kinds of events that are highlighted, since they are signs of a problem."""


@words.renders
def render(values: Values) -> Iterator[rich.RenderableType]:
    """Render an answer to `explain`."""
    row = values["container"]
    yield from (rich.Text(words.title(row), style=HEADING), *_now(row), *words.notices_of(values))
    if short := values.get("should_own"):  # missing in answers of earlier versions
        yield rich.Text(_should_have(short), style=TROUBLE)
    for each in values.get("over_quota", ()):
        yield rich.Text(f"It has been {quota_of(each, values)}", style=TROUBLE)
    if values["waits_for"]:
        others = ", ".join(values["waits_for"])
        yield rich.Text(f"It cannot start until others have left its CPUs: {others}", TROUBLE)
    if values["asked"]:
        yield from section("What it requested, as the kubelet sent it", values["asked"]["read_as"])
    yield from section(WHY.get(row["state"], "Why it runs there"), values["why"])
    if controls := values.get("controls"):  # missing in answers of earlier versions
        yield from section("What its classes set", [*container_lines(controls)])
    devices = values.get("devices", ())
    quotas = [_quota(each["quota"]) for each in devices if each.get("quota")]
    yield from section("How it got its cards", [*map(_cards, devices), *quotas])
    yield from render_choices(values.get("choices", ()))  # missing in answers of earlier versions
    yield from _history(values["events"])
    yield from section("Other containers with this name, newest first", [*_earlier(values["earlier"])])


def _now(row: Values) -> Iterator[rich.Text]:
    """Render the current state in a few lines."""
    if "qos" not in row:
        if row["state"] == "refused":
            yield rich.Text("It was refused, and never had an ID", style=TROUBLE)
        else:
            yield rich.Text("It no longer exists")
            yield rich.Text(f"ID {row['id'] or 'unknown'}", overflow="fold")
        return
    attempt = f", attempt {row['attempt']}" if row["attempt"] else ""
    yield rich.Text(f"ID {row['id'] or 'not known yet'}", overflow="fold")
    yield rich.Text(f"{row['state'].capitalize()}, {row['qos']}{attempt}")
    if row["state"] == "exited":
        return
    yield rich.Text(f"Size in force: CPU {words.cpu(row)}, memory limit {words.memory(row)}")
    yield rich.Text(_place(row), style="" if row["in_place"] else TROUBLE)
    if row["error"]:
        yield rich.Text(f"WRONG: {count(row['failures'], 'update')} failed, the last: {row['error']}", style=TROUBLE)


def _place(row: Values) -> str:
    if not row["placed"]:
        at = cpus_text(row["applied_cpus"]) if row["applied_cpus"] else "unknown CPUs"
        return f"It is not placed; it runs on {at}"
    pool = f", pool {row['pool']}" if row["pool"] else ""
    memory = f", memory of NUMA node{'s' if len(row['mems']) > 1 else ''} {row['mems']}" if row["mems"] else ""
    return f"Runs on {cpus_text(row['cpus'])}, {words.exclusivity(row)}{memory}{pool}{_elsewhere(row)}"


def _should_have(short: Values) -> str:
    since = f" since {short['since']}" if short["since"] else ""
    now = f"{'has had' if since else 'has'} {short['owns_cpus'] or 'shared CPUs'}{since}"
    return f"It should have {count(short['should_own_cpus'], 'exclusive CPU')}, but {now}: {short['why']}"


def _ids(share: Values) -> str:
    """Return the known IDs, and the number of others."""
    left = share.get("count", 0) - len(share["ids"])
    return ", ".join([*share["ids"], *([f"{left} more"] if left > 0 else [])])


def _cards(kind: Values) -> str:
    """Return the allocation and the device nodes of the create, in one line."""
    known = [f"{each['resource']} {_ids(each)} ({each['source']})" for each in kind["allocated"]] or [kind["evidence"]]
    cards = f"card{'s' if len(kind['cards']) > 1 else ''} {', '.join(kind['cards']) or 'unknown'}"
    where = f" at {kind['pci_addresses'].replace(',', ', ')}" if kind["pci_addresses"] else ""
    nodes = kind["nodes"].replace(",", ", ") or "no device node of a card"
    numa = f" → NUMA node {kind['numa_nodes'].replace(';', ', ')}" if kind["numa_nodes"] else ""
    return f"{kind['class']}: {' and '.join(known)} → {cards}{where} → {nodes}{numa}"


def _quota(quota: Values) -> str:
    """What it may use of its vGPU, and what holds it to that."""
    by = f", enforced by {quota['enforced_by']}" if quota["enforced_by"] else ""
    without = f"; not in effect: {quota['not_enforced']}" if quota["not_enforced"] else ""
    return f"quota of {quota['profile']}: {words.vgpu_size(quota)}{by}{without}"


def _elsewhere(row: Values) -> str:
    if row["in_place"]:
        return ""
    if not row["applied_cpus"]:
        return "; it is unknown where it runs now"
    memory = f" and memory of {row['applied_mems']}" if row["applied_mems"] != row["mems"] else ""
    return f"; it is still on {cpus_text(row['applied_cpus'])}{memory}"


def _history(events: list[Values]) -> Iterator[rich.RenderableType]:
    if not events:
        yield from section("What happened", ["its history is no longer available"])
    for day, events_of_day in groupby(events, key=lambda each: each["time"][:10]):
        yield rich.Text()
        yield rich.Text(f"What happened on {day} (UTC)", style=HEADING)
        table = indented(columns=3)
        for each in events_of_day:
            at = rich.Text(each["time"][11:23], style=QUIET)
            table.add_row("", at, each["kind"], _event(each), style=TROUBLE if each["kind"] in BAD else "")
        yield table


def _event(event: Values) -> str:
    if event["kind"] == "asked":
        return "the kubelet requested it, as shown above"
    took = event["facts"].get("took_ms")
    return "; ".join(event["sentences"]) + (f" ({took:g} ms)" if took is not None else "")


def _earlier(others: list[Values]) -> Iterator[str]:
    """Yield a line for each, with one line for repeated attempts with the same result."""
    for (state, text, _), same in groupby(others, key=lambda each: (each["state"], each["text"], each["id"])):
        newest, *rest = same
        times = f" ({len(rest) + 1} times since {rest[-1]['time'][:19]}Z)" if rest else ""
        shortened = bounded_text(text, MAX_EARLIER_CHARS)
        yield f"{newest['time'][:19]}Z  {newest['id'][:12] or '(no ID)':12}  {state}: {shortened}{times}"
