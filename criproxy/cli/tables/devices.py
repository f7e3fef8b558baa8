"""`criproxy devices` on a terminal."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from criproxy.cli.render import words
from criproxy.cli.render.console import HEADING, NOTE, QUIET
from criproxy.cli.render.topology_words import count
from criproxy.cli.tables import device_plugin
from criproxy.cli.tables.answers import no_answer, notices_of, title_of
from criproxy.devices.classes.links import Distance
from criproxy.model.text.bounded import bounded
from criproxy.model.workload import SHORT_ID

Values = dict[str, Any]
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


def render(values: Values, width: int, height: int | None = None) -> RenderableType:
    """Render an answer to `devices` for *width* columns."""
    values = bounded(values)
    if "error" in values:
        return no_answer(values)
    parts: list[RenderableType] = [title_of(values), *notices_of(values), *device_plugin.state(values)]
    parts += [*device_plugin.incidents(values), *device_plugin.over_quota(values)]
    parts += device_plugin.vgpus(values)
    known = values["holders_known"]
    empty = [kind for kind in values["classes"] if not any(kind.get(key) for key in _SHOWN)]
    for kind in values["classes"]:
        if kind not in empty:
            parts += [Text(), *_class(kind, width, known=known)]
    if empty:
        parts += [Text(), Text(f"no cards: {', '.join(kind['name'] for kind in empty)}", style=QUIET)]
    parts += _others(values)
    return Group(*parts)


_SHOWN = ("cards", "elsewhere", "may_see_more", "advertised")
"""What is shown of a class."""


def _class(kind: Values, width: int, *, known: bool) -> Iterator[RenderableType]:
    cards = kind["cards"]
    idle = sum(not card["containers"] for card in cards)
    state = f", {idle} idle" if known else ""
    shared = f"; shared nodes: {' '.join(kind['shared_nodes'])}" if kind["shared_nodes"] else ""
    yield Text(f"{kind['name']}: {count(len(cards), 'card')}{state}{shared}", style=HEADING)
    yield from device_plugin.advertised(kind)
    if cards:
        yield _cards(cards, wide=width >= WIDE)
    if len(cards) > 1:
        yield _links(cards, kind["links"])
        used = {one["link"] for one in kind["links"]}
        linked = ["NV# = that many NVLinks"] if any(one["nvlinks"] for one in kind["links"]) else []
        named = [f"{word} = {text}" for word, text in MEANINGS.items() if word in used]
        yield Text(f"  between two cards: {', '.join([*linked, *named])}", style=QUIET)
    for held in kind["elsewhere"]:
        ids = ", ".join(held["ids"])
        not_here = "not all of which are cards" if len(held["ids"]) > 1 else "which is not a card"
        what = f"{ids}, {not_here} of this machine" if ids else "an unknown card"
        yield Text(f"  {words.title(held)} was allocated {what} ({held['evidence']})", style=NOTE)
    for seen in kind["may_see_more"]:
        text = f"{words.title(seen)} may see more than was allocated to it"
        yield Text(f"  {text}: {', '.join(seen['findings'])}", style=NOTE)


def _cards(cards: Sequence[Values], *, wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    healths = ["HEALTH"] if device_plugin.is_known(list(cards)) else []
    for name in ("  CARD", "ID", "PCI", "NUMA", *(["NODES"] if wide else []), *healths, "ALLOCATED TO"):
        table.add_column(name, overflow="fold")
    for card in cards:
        card_id = card["id"] if wide else card["id"][:SHORT_ID]
        nodes = [" ".join(card["nodes"]) or "-"] if wide else []
        numa = "-" if card["numa_node"] is None else str(card["numa_node"])
        cells = [card_id or "-", card["pci_address"] or "-", numa, *nodes]
        health = [device_plugin.health(card)] if healths else []
        table.add_row(f"  {card['index']}", *cells, *health, _holders(card))
    return table


def _holders(card: Values) -> Text:
    if card["containers"] is None:
        return Text("?", style=QUIET)
    if not card["containers"]:
        return Text("none", style=QUIET)
    return Text("\n".join(_holder(card, held) for held in card["containers"]))


def _holder(card: Values, held: Values) -> str:
    """Return the container, its part of the card if it is known, and the evidence."""
    return f"{words.short_title(held)} ({device_plugin.parts_of(card, held)}{held['evidence']})"


def _links(cards: Sequence[Values], links: Sequence[Values]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("  LINKS", *(str(card["index"]) for card in cards)):
        table.add_column(name)
    named = {frozenset((one["from"], one["to"])): one["link"] for one in links}
    for card in cards:
        row = (named.get(frozenset((card["index"], other["index"])), "-") for other in cards)
        table.add_row(f"  {card['index']}", *row)
    return table


def _others(values: Values) -> Iterator[Text]:
    """Render the containers whose cards are unknown, or elsewhere."""
    everything = values["see_all"]
    for why in sorted({word for seen in everything for word in seen["findings"]}):
        names = [words.title(seen) for seen in everything if why in seen["findings"]]
        yield Text(f"{why}, so nothing is hidden: {', '.join(names)}", style=NOTE)
    unknown = values["untold"]
    if unknown and values["guarded"] is not False:  # else a notice says that about all containers
        names = [words.title(one) for one in unknown[:MOST_NAMES]]
        more = [f"{len(unknown) - len(names)} more"] if len(unknown) > len(names) else []
        text = f"the cards of {count(len(unknown), 'container')} are unknown"
        yield Text(f"{text}: {', '.join([*names, *more])}", style=QUIET)
