"""The lists of `criproxy top`: containers, cards and events, one line for each. Pure."""

from collections.abc import Iterator, Sequence

from criproxy.api.views.top.cards import CardRow, Share
from criproxy.api.views.top.events import Event, cpus_of
from criproxy.api.views.top.scene import Scene, Sort
from criproxy.api.views.top.snapshot import Row
from criproxy.cli.screen.render.cpu_map import style_of
from criproxy.cli.screen.render.lines import (
    HEADING,
    NOTE,
    QUIET,
    TROUBLE,
    Line,
    Piece,
    cropped,
    fit,
    gauge,
    heat,
    line,
    middle,
    percent,
    right,
)
from criproxy.model.text.amounts import format_bytes

WIDE = 110
"""From so many columns on, there are more columns about each container."""
NARROW = 60
"""Below so many, there are fewer: the name needs the room."""
LEAST_CARD, MOST_CARD, BESIDE_CARD = 12, 48, 67
"""Columns of the id of a card, and of what stands beside it in its line."""
_QOS = {"Guaranteed": "Guar", "Burstable": "Burst", "BestEffort": "Best"}
_SORTED = {Sort.CPU: "CPU", Sort.MEMORY: "MEMORY", Sort.NAME: "CONTAINER", Sort.EXCLUSIVE: "CPUS"}


def _columns(width: int) -> dict[str, int]:
    """The columns of the containers and their sizes; what is negative is at the left of its place."""
    if width < NARROW:
        return {" ": -1, "CPU": 6, "USE": 5, "CONTAINER": 0}
    wide = {"LIMIT": 9, "QOS": -6, "STATE": -9} if width >= WIDE else {}
    cpus = -22 if width >= WIDE else -14
    return {" ": -1, "CPU": 6, "USE": 5, "MEMORY": 9, **wide, "CPUS": cpus, "CONTAINER": 0}


def container_head(width: int, sort: Sort) -> Line:
    """The names of the columns; that by which the rows are sorted stands out."""
    pieces: list[Piece] = []
    for name, size in _columns(width).items():
        style = f"{HEADING} underline" if name == _SORTED[sort] else HEADING
        text = name if size == 0 else (fit(name, -size) if size < 0 else right(name, size))
        pad = text[: len(text) - len(text.lstrip())]
        pieces += [(pad, HEADING), (text.strip(), style), (text[len(pad) + len(text.strip()) :] + " ", HEADING)]
    return cropped([piece for piece in pieces if piece[0]], width)


def container_line(scene: Scene, row: Row, width: int) -> Line:
    """One container."""
    mark = scene.owners.marks.get(row.key, " ")
    used, memory = scene.rates.cpu_milli.get(row.id), scene.rates.memory_bytes.get(row.id)
    of_bound = used / row.cpu_bound_milli if used is not None and row.cpu_bound_milli else None
    of_limit = memory / row.memory_limit_bytes if memory is not None and row.memory_limit_bytes else None
    cells = {
        " ": (mark, style_of(mark) if mark != " " else ""),
        "CPU": ("-" if used is None else f"{used / 1000:.2f}", "" if used else QUIET),
        "USE": ("" if of_bound is None else percent(of_bound), _alarm(of_bound)),
        "MEMORY": ("-" if memory is None else format_bytes(memory), _alarm(of_limit)),
        "LIMIT": (format_bytes(row.memory_limit_bytes) if row.memory_limit_bytes else "-", QUIET),
        "QOS": (_QOS.get(row.qos, row.qos), QUIET),
        "STATE": (row.state, "" if row.state == "running" else NOTE),
        "CPUS": _cpus(row),
    }
    pieces: list[Piece] = []
    for name, size in _columns(width).items():
        if size:
            text, style = cells[name]
            pieces += [(fit(text, -size) if size < 0 else right(text, size), style), (" ", "")]
    pieces += _named(row, width - sum(len(text) for text, _ in pieces))
    return cropped(pieces, width)


def _alarm(ratio: float | None) -> str:
    """The style of what is used of what is allowed."""
    if ratio is None or ratio < 0.9:
        return ""
    return NOTE if ratio < 0.98 else TROUBLE


def _cpus(row: Row) -> Piece:
    if row.in_place:
        return cpus_of(row), "" if row.exclusive else QUIET
    return f"{cpus_of(row)} !", TROUBLE


def _named(row: Row, width: int) -> Iterator[Piece]:
    """The name, and why it does not run where it should."""
    if row.in_place:
        yield middle(row.title, width), ""
        return
    why = f"  {row.error or 'not there yet'}"
    room = max(width - min(len(why), width // 2), 0)
    yield fit(row.title, len(row.title)) if len(row.title) <= room else middle(row.title, room), ""
    yield why, TROUBLE


def card_lines(cards: Sequence[CardRow], width: int) -> list[Line]:
    """A line for each card, and one below it for each container that has it."""
    lines: list[Line] = []
    for card in cards:
        lines.append(cropped(_card(card, width), width))
        lines += [cropped(_share(share, width), width) for share in card.shares or ()]
    return lines


def _card(card: CardRow, width: int) -> Iterator[Piece]:
    of_memory = card.memory_mib / card.total_mib if card.memory_mib is not None and card.total_mib else None
    cores = card.cores_percent / 100 if card.cores_percent is not None else None
    name = _card_id(width)
    yield f"{fit(card.kind, 8)} {middle(card.id, name)} ", HEADING
    yield fit("" if card.numa_node is None else f"node {card.numa_node}", 8), QUIET
    yield gauge(of_memory, 6), heat(of_memory)
    yield f" {right(_of(card.memory_mib, card.total_mib), 14)} MiB ", "" if card.memory_mib is not None else QUIET
    yield gauge(cores, 6), heat(cores)
    yield f" {right(percent(cores), 4)} ", ""
    if card.healthy is False:
        yield "UNHEALTHY", TROUBLE
    elif card.shares is None:
        yield "containers ?", QUIET
    elif not card.shares:
        yield "free", QUIET


def _card_id(width: int) -> int:
    return max(LEAST_CARD, min(MOST_CARD, width - BESIDE_CARD))


def _share(share: Share, width: int) -> Iterator[Piece]:
    known = share.memory_mib is not None or share.memory_granted_mib is not None
    memory = f"{_of(share.memory_mib, share.memory_granted_mib)} MiB" if known else ""
    cores = ""
    if share.cores_percent is not None or share.cores_granted_percent is not None:
        cores = f"{_of(share.cores_percent, share.cores_granted_percent)} %"
    yield "  └ ", QUIET
    yield middle(share.title, _card_id(width) + 15), ""  # so that amounts end below those of the card
    yield right(memory, 24), TROUBLE if share.over else ""
    yield right(cores, 13), TROUBLE if share.over else ""
    if share.over:
        yield " OVER", TROUBLE


def _of(used: float | None, granted: float | None) -> str:
    shown = "?" if used is None else f"{used:.0f}"
    return shown if granted is None else f"{shown} of {granted:.0f}"


def event_lines(events: Sequence[Event], width: int) -> list[Line]:
    """The newest first."""
    return [
        cropped(line((f"{event.time[11:19]} ", QUIET), (event.text, TROUBLE if event.wrong else "")), width)
        for event in reversed(events)
    ]
