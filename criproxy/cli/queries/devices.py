"""``criproxy devices``: the accelerators of this machine, their distances, and the containers that have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from criproxy.cli.client import NodeClient, places_options
from criproxy.cli.options import PathOption
from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render import words
from criproxy.cli.render.console import HEADING, NOTE, QUIET, TROUBLE, table
from criproxy.cli.render.topology_words import count
from criproxy.cli.repeated_output import Values, show_answer, watch_options
from criproxy.devices.classes.cards import Card, Distance, Peers
from criproxy.model.workload import SHORT_ID

_NVIDIA_ID = "GPU-"


@click.command(short_help="Show the GPUs and NPUs of this machine, and the containers that have them.")
@watch_options
@click.option(
    "--config",
    type=PathOption(),
    metavar="FILE|DIR",
    help="Policy file with the device classes, used if no daemon answers.  [default: /etc/criproxy/policy.yaml]",
)
@places_options
def command(
    *,
    watch: bool,
    interval_s: float,
    output: str,
    config: Path | None,
    **places: Any,  # noqa: ANN401 (click has checked them)
) -> None:
    """Show the cards of each device class, the links between them, and the containers that have them.

    The command asks the daemon. If no daemon answers, it reads this machine and the state that the daemon left on disk.
    The evidence for each allocation is in brackets: annotation, podresources, checkpoint, cdi, nodes. Links between
    cards have the same names as in nvidia-smi. The command gets NVLinks and MIG devices from NVML.
    """
    ask = partial(_query, NodeClient(**places, config=config))
    show_answer(ask, output, render, watch=watch, interval_s=interval_s)


def _query(places: NodeClient) -> Values:
    values = places.ask("devices")
    if any(card["id"].startswith(_NVIDIA_ID) for kind in values["classes"] for card in kind["cards"]):
        peers, problem = _nvml()
        add_peers(values, peers)
        if problem:
            values["notices"].append({"kind": "nvml", "wrong": False, "text": problem})
    return values


@cache
def _nvml() -> tuple[Mapping[str, Peers], str]:
    """Query NVML once, since it may take seconds; return its answer, or why there is none."""
    from criproxy.host.nvml import NoNvml, ask_nvml

    try:
        return ask_nvml(), ""
    except NoNvml as error:
        return {}, f"links between GPUs are those of the PCI bus, and MIG devices are unknown: {error}"


def add_peers(values: Values, peers: Mapping[str, Peers]) -> None:
    """Add the driver's data about cards, by their ids, to an answer to `devices`."""
    from criproxy.api.views.devices import links_between

    for kind in values["classes"]:
        rows = kind["cards"]
        if not any(row["id"] in peers for row in rows):
            continue
        kind["links"] = links_between([_card(row) for row in rows], peers)
        for row in rows:
            if row["id"] in peers:  # else the parts may be known from the device plugin
                row["parts"] = list(peers[row["id"]].parts)
        kind["elsewhere"] = [held for held in kind["elsewhere"] if not _has_parts(rows, held)]


def _has_parts(rows: list[Values], held: Values) -> bool:
    """Whether all ids of a container are cards in *rows* or their parts; add the container to these cards."""
    owners = [row for row in rows if set(row["parts"]) & set(held["ids"])]
    for row in owners:
        if held not in row["containers"]:
            row["containers"].append(held)
    found = {part for row in owners for part in (*row["parts"], row["id"])}
    return bool(held["ids"]) and found.issuperset(held["ids"])


def _card(row: Values) -> Card:
    return Card(
        number=row["number"],
        id=row["id"],
        pci=row["pci_address"],
        bridges=tuple(row["pci_bridges"]),
        numa_node=-1 if row["numa_node"] is None else row["numa_node"],
    )


def plugin_state(values: Values) -> Iterator[rich.Text]:
    """Render whether the device plugin runs; nothing if it has never reported."""
    plugin = values.get("device_plugin")  # missing in answers of earlier versions
    if plugin is None:
        return
    if plugin["state"] == "running":
        by = f"; NVIDIA's file: {plugin['configuration']}" if plugin.get("configuration") else ""
        yield rich.Text(f"device plugin: running (reported at {plugin['reported']}{by})", style=QUIET)
    else:
        text = f"device plugin: not running (last report at {plugin['reported']}); its report may be outdated"
        yield rich.Text(text, style=NOTE)


def advertised(kind: Values) -> Iterator[rich.Text]:
    """Render a line for each resource of a class."""
    for each in kind.get("advertised", ()):
        given = "" if each["given"] is None else f", {each['given']} allocated"
        why = "" if each["registered"] else f"; the kubelet has not accepted it: {each['problem'] or 'not registered'}"
        line = f"  {each['name']}: {count(each['ids'], 'ID')}, {each['healthy']} healthy{given}{why}"
        yield rich.Text(line, style=NOTE if why else "")


def vgpus(values: Values) -> Iterator[rich.Text]:
    """Render a line for each profile."""
    for each in values.get("vgpus", ()):
        if not each.get("offered", True):
            given = sum(each["used_by_card"].values())
            yield rich.Text(f"profile {each['profile']}: {given} allocated, no longer offered")
            continue
        quota = words.vgpu_size(each)
        size = f" with {quota} each" if quota else ""
        by = each.get("enforced_by")  # a daemon or device plugin of an earlier version does not say it
        enforced = f"; enforced by {' and '.join(by)}" if by else ""
        yield rich.Text(
            f"profile {each['profile']}: {count(each['count'], 'vGPU')}{size}, {each['free']} free{enforced}"
        )
        for method, reason in each.get("not_enforced_by", {}).items():
            yield rich.Text(f"profile {each['profile']} is not enforced by {method}: {reason}", style=NOTE)


def health(card: Values) -> rich.Text:
    """Render the health of a card for a cell."""
    if card.get("healthy") is None:
        return rich.Text("?", style=QUIET)
    if card["healthy"]:
        return rich.Text("healthy")
    since = f" since {card['since'][:19]}Z" if card["since"] else ""
    return rich.Text(f"unhealthy{since}: {card['reason'] or 'no reason given'}", style=TROUBLE)


MOST_PARTS = 8
"""The maximum number of ids that are shown for one container and one card."""


def parts_of(card: Values, held: Values) -> str:
    """Return the ids of a container's replicas or parts of a card; empty for the whole card."""
    ids = [each for each in held.get("ids_of_card", ()) if each not in held["ids"]]
    ids += [each for each in held["ids"] if each in card["parts"]]
    unnamed = sum(share.get("count", 0) - len(share["ids"]) for share in held.get("allocated", ()) if "count" in share)
    more = len(ids[MOST_PARTS:]) + (unnamed if ids and len(held["ids"]) == 1 else 0)
    return "".join(f"{each}, " for each in [*ids[:MOST_PARTS], *([f"{more} more"] if more else [])])


def incidents(values: Values) -> Iterator[rich.Text]:
    """Render unhealthy cards, with the containers that use them."""
    for each in values.get("incidents", ()):
        users = [f"{words.title(one)}{_use(one, values)}" for one in each["containers"]]
        by = f", used by {', '.join(users)}" if users else ", used by no container"
        text = f"{each['class']}: card {each['card']} has been unhealthy since {each['since']}: {each['reason']}"
        yield rich.Text(f"{text} (onUnhealthy: {each['action']}){by}", style=TROUBLE if users else NOTE)


def _use(one: Values, values: Values) -> str:
    """Return what is done about the container *one* in *values*: without a disk, criproxy stops none."""
    stored = all(notice.get("kind") != "store" for notice in values.get("notices", ()))
    known = {
        "stopping": " (being stopped)" if stored else " (is stopped when criproxy can store that)",
        "stopped": " (stopped)",
        "killed": " (the watcher was told to kill a process)",
    }
    return known.get(one["use"], "")


def over_quota(values: Values) -> Iterator[rich.Text]:
    """Render the containers over the quotas of their vGPUs."""
    for each in values.get("over_quota", ()):
        yield rich.Text(f"{words.title(each)} has been {quota_of(each, values)}", style=TROUBLE)


def quota_of(each: Values, values: Values) -> str:
    """Return which quota a container exceeds, by how much, and the action; *values* is the whole answer."""
    unit = "MiB" if each["quantity"] == "memory" else "% of the cores"
    amounts = f"{each['used']} {unit} used, {each['allowed']} {unit} allowed on {each['card']}"
    return f"over its quota since {each['since'][:19]}Z: {amounts} (quota: {each['action']}){_use(each, values)}"


WIDE = 120
"""The minimum width for complete ids and device nodes."""
MOST_NAMES = 10
"""The maximum number of names of containers whose cards are unknown."""
MEANINGS = {
    Distance.PIX.name: "within one PCIe switch",
    Distance.PXB.name: "across several PCIe switches",
    Distance.PHB.name: "across a host bridge",
    Distance.NODE.name: "across the host bridges of a NUMA node",
    Distance.SYS.name: "across NUMA nodes, or unknown",
}


@words.renders
def render(values: Values, width: int, height: int | None = None) -> Iterator[rich.RenderableType]:
    """Render an answer to `devices` for *width* columns."""
    yield from (words.title_of(values), *words.notices_of(values), *plugin_state(values))
    yield from (*incidents(values), *over_quota(values), *vgpus(values))
    empty = [kind for kind in values["classes"] if not any(kind.get(key) for key in _SHOWN)]
    for kind in values["classes"]:
        if kind not in empty:
            yield from (rich.Text(), *_class(kind, width, known=values["holders_known"]))
    if empty:
        yield rich.Text(f"\nno cards: {', '.join(kind['name'] for kind in empty)}", style=QUIET)
    yield from _others(values)


_SHOWN = ("cards", "elsewhere", "may_see_more", "advertised")
"""What is shown of a class."""


def _class(kind: Values, width: int, *, known: bool) -> Iterator[rich.RenderableType]:
    cards = kind["cards"]
    idle = sum(not card["containers"] for card in cards)
    state = f", {idle} idle" if known else ""
    shared = f"; shared nodes: {' '.join(kind['shared_nodes'])}" if kind["shared_nodes"] else ""
    yield rich.Text(f"{kind['name']}: {count(len(cards), 'card')}{state}{shared}", style=HEADING)
    yield from advertised(kind)
    if cards:
        yield _cards(cards, wide=width >= WIDE)
    if len(cards) > 1:
        yield _links(cards, kind["links"])
        used = {one["link"] for one in kind["links"]}
        linked = ["NV# = that many NVLinks"] if any(one["nvlinks"] for one in kind["links"]) else []
        named = [f"{word} = {text}" for word, text in MEANINGS.items() if word in used]
        yield rich.Text(f"  between two cards: {', '.join([*linked, *named])}", style=QUIET)
    for held in kind["elsewhere"]:
        ids = ", ".join(held["ids"])
        not_here = "not all of which are cards" if len(held["ids"]) > 1 else "which is not a card"
        what = f"{ids}, {not_here} of this machine" if ids else "an unknown card"
        yield rich.Text(f"  {words.title(held)} was allocated {what} ({held['evidence']})", style=NOTE)
    for seen in kind["may_see_more"]:
        text = f"{words.title(seen)} may see more than was allocated to it"
        yield rich.Text(f"  {text}: {', '.join(seen['findings'])}", style=NOTE)


def _cards(cards: Sequence[Values], *, wide: bool) -> rich.Table:
    healths = ["HEALTH"] if any(card.get("healthy") is not None for card in cards) else []
    found = table("  CARD", "ID", "PCI", "NUMA", *(["NODES"] if wide else []), *healths, "ALLOCATED TO")
    for card in cards:
        card_id = card["id"] if wide else card["id"][:SHORT_ID]
        nodes = [" ".join(card["nodes"]) or "-"] if wide else []
        numa = "-" if card["numa_node"] is None else str(card["numa_node"])
        cells = [card_id or "-", card["pci_address"] or "-", numa, *nodes]
        health_cell = [health(card)] if healths else []
        found.add_row(f"  {card['index']}", *cells, *health_cell, _holders(card))
    return found


def _holders(card: Values) -> rich.Text:
    """Render the containers of a card, each with its part of the card if it is known, and the evidence."""
    if not (holders := card["containers"]):
        return rich.Text("?" if holders is None else "none", style=QUIET)
    lines = (f"{words.short_title(held)} ({parts_of(card, held)}{held['evidence']})" for held in holders)
    return rich.Text("\n".join(lines))


def _links(cards: Sequence[Values], links: Sequence[Values]) -> rich.Table:
    found = table("  LINKS", *(str(card["index"]) for card in cards))
    named = {frozenset((one["from"], one["to"])): one["link"] for one in links}
    for card in cards:
        row = (named.get(frozenset((card["index"], other["index"])), "-") for other in cards)
        found.add_row(f"  {card['index']}", *row)
    return found


def _others(values: Values) -> Iterator[rich.Text]:
    """Render the containers whose cards are unknown, or elsewhere."""
    everything = values["see_all"]
    for why in sorted({word for seen in everything for word in seen["findings"]}):
        names = [words.title(seen) for seen in everything if why in seen["findings"]]
        yield rich.Text(f"{why}, so nothing is hidden: {', '.join(names)}", style=NOTE)
    unknown = values["untold"]
    if unknown and values["guarded"] is not False:  # else a notice says that about all containers
        names = [words.title(one) for one in unknown[:MOST_NAMES]]
        more = [f"{len(unknown) - len(names)} more"] if len(unknown) > len(names) else []
        text = f"the cards of {count(len(unknown), 'container')} are unknown"
        yield rich.Text(f"{text}: {', '.join([*names, *more])}", style=QUIET)
