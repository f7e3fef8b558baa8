"""One frame of `criproxy top`: which part gets how many lines of the screen. Pure."""

from collections.abc import Sequence

from criproxy.cli.render import words
from criproxy.cli.render.top import cpu_map, tables
from criproxy.cli.render.top.lines import (
    BAR,
    HEADING,
    NOTE,
    QUIET,
    TROUBLE,
    Line,
    Piece,
    cropped,
    filled,
    gauge,
    heat,
    line,
    percent,
    rule,
    width_of,
)
from criproxy.cli.render.top.view import Page, View, window
from criproxy.model.amounts import counted, format_bytes
from criproxy.views.top.scene import Scene, chosen

LEAST_WIDTH, LEAST_HEIGHT = 40, 10
MOST_NOTICES = 2
KEYS = (
    ("1 to 5, Tab", "everything, CPUs, containers, devices, events"),
    ("c m n x", "sort containers by CPU use, memory, name, number of exclusive CPUs"),
    ("r", "reverse the order"),
    ("/", "show only containers whose NAMESPACE/POD/CONTAINER contains a text; Esc clears it"),
    ("arrows, j k, PgUp PgDn, Home End", "scroll"),
    ("space", "freeze the screen, or continue"),
    ("h ?", "this help"),
    ("q, Ctrl-C", "quit"),
)


def frame(scene: Scene, view: View, width: int, height: int) -> list[Line]:
    """The lines of a screen: exactly *height*, none wider than *width*."""
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        text = f"criproxy top needs {LEAST_WIDTH}x{LEAST_HEIGHT}"
        return [cropped(line(text), width), *[()] * (height - 1)][:height]
    head = _head(scene, width)
    room = height - len(head) - 1
    body = _help(width) if view.helping else _page(scene, view, width, room)
    body = [cropped(each, width) for each in body[:room]]
    return [*head, *body, *[()] * (room - len(body)), _foot(scene, view, width)]


def once(scene: Scene, view: View, width: int) -> list[Line]:
    """Everything, in as many lines as it takes: for what is no screen."""
    rows = chosen(scene, view.text, view.sort, reverse=view.reverse)
    lines = [*_head(scene, width), *_cpus(scene, min(width, 160), 1000), rule("Containers", min(width, 80))]
    lines += [tables.container_head(width, view.sort), *(tables.container_line(scene, row, width) for row in rows)]
    if scene.cards:
        lines += [rule("Devices", min(width, 80)), *tables.card_lines(scene.cards, min(width, 160))]
    if scene.events:
        lines += [rule("Events", min(width, 80)), *tables.event_lines(scene.events, width)]
    return lines


def list_room(scene: Scene, view: View, width: int, height: int) -> int:
    """The lines of the list that scrolls, about: how far PgDn goes."""
    return max(1, height - len(_head(scene, width)) - (12 if view.page is Page.ALL else 4))


def _head(scene: Scene, width: int) -> list[Line]:
    """Who answers, how the node is, and what is wrong."""
    lines = [_title(scene, width), _node(scene, width)]
    if scene.problem:
        lines.append(cropped(line((scene.problem, TROUBLE)), width))
    wrong = [text for is_wrong, text in (scene.told.notices if scene.told else ()) if is_wrong]
    lines += [cropped(line((f"WRONG: {text}", TROUBLE)), width) for text in wrong[:MOST_NOTICES]]
    if more := len(wrong) - MOST_NOTICES:
        lines += [line((f"{more} more; criproxy status --check", NOTE))] if more > 0 else []
    return lines


def _title(scene: Scene, width: int) -> Line:
    told = scene.told
    who = f" criproxy top  {scene.host}"
    if told is not None:
        up = f"  up {words.ago(told.started)}" if told.started and told.source == "daemon" else ""
        who += f"  policy {told.policy}{up}" if told.policy else up
    blank = width - width_of(who) - width_of(scene.clock) - 1
    return filled([(who, BAR), (" " * max(1, min(blank, 200)), BAR), (scene.clock, BAR)], min(width, 1000), BAR)


def _node(scene: Scene, width: int) -> Line:
    """How much of the machine is in use."""
    load, memory = scene.rates.mean_load, scene.rates.memory
    size = 10 if width < 100 else 16
    pieces: list[Piece | str] = [(" CPU ", QUIET), (gauge(load, size), heat(load)), f" {percent(load)}"]
    if memory:
        ratio = 1 - memory.available_bytes / memory.total_bytes if memory.total_bytes else 0.0
        pieces += [("  memory ", QUIET), (gauge(ratio, size), heat(ratio)), f" {percent(ratio)}"]
        pieces += [(f" of {format_bytes(memory.total_bytes)}", QUIET)] if width >= 100 else []
    if scene.told:
        sets = scene.told.sets
        pieces += [("  exclusive ", QUIET), f"{len(sets['exclusive'])} of {len(sets['allowed'])}"]
        pieces += [("  free ", QUIET), f"{len(sets['free'])}"]
        pieces += [("  pods ", QUIET), f"{scene.told.pods}"] if width >= 90 else []
    return cropped(line(*pieces), width)


def _foot(scene: Scene, view: View, width: int) -> Line:
    if view.typing:
        return cropped(
            line(("filter: ", HEADING), view.text, ("█", ""), ("   Enter keeps it, Esc clears it", QUIET)), width
        )
    names = {
        Page.ALL: "all",
        Page.CPUS: "CPUs",
        Page.CONTAINERS: "containers",
        Page.DEVICES: "devices",
        Page.EVENTS: "events",
    }
    pieces: list[Piece | str] = []
    for page, name in names.items():
        pieces += [(f" {page.value} {name} ", BAR if page is view.page else QUIET)]
    if view.frozen:
        pieces += [(" FROZEN, space continues ", NOTE)]
    pieces += [("  / filter  h help  q quit", QUIET)]
    return cropped(line(*pieces), width)


def _help(width: int) -> list[Line]:
    size = max(len(keys) for keys, _ in KEYS) + 2
    lines = [line(), rule("Keys", width), *(line((keys.ljust(size), HEADING), text) for keys, text in KEYS)]
    lines += [
        line(),
        rule("CPUs", width),
        line("The bar of a CPU is its load; its colour and mark are those of its owner:"),
    ]
    lines += [line("a letter for a container with exclusive CPUs, which the list of containers also shows;")]
    lines += [line("· shared   = reserved   ~ kept for a pod whose containers have ended   - not for pods   x offline")]
    return [*lines, line(), line(("Any key goes back.", QUIET))]


def _page(scene: Scene, view: View, width: int, room: int) -> list[Line]:
    match view.page:
        case Page.CPUS:
            lines = [*_legend(scene), *cpu_map.gauges(scene, width)]
            return _scrolled("CPUs", lines, view, width, room)
        case Page.CONTAINERS:
            return _containers(scene, view, width, room)
        case Page.DEVICES:
            lines = tables.card_lines(scene.cards, width) or [line(("no cards are known", QUIET))]
            return _scrolled("Devices", lines, view, width, room)
        case Page.EVENTS:
            lines = tables.event_lines(scene.events, width) or [line(("nothing has happened yet", QUIET))]
            return _scrolled("Events", lines, view, width, room)
        case Page.ALL:
            return _all(scene, view, width, room)


def _all(scene: Scene, view: View, width: int, room: int) -> list[Line]:
    """A bit of everything: CPUs at most half of the screen, then devices and events, the rest containers."""
    cpus = _cpus(scene, width, max(2, room // 2 - 1))
    room -= len(cpus)
    cards = tables.card_lines(scene.cards, width)
    events = tables.event_lines(scene.events, width)
    for_cards = min(len(cards), max(2, room // 4)) if cards else 0
    for_events = min(len(events), max(2, room // 5)) if events else 0
    below: list[Line] = []
    if cards:
        below += [rule("Devices", width, _more(for_cards, len(cards))), *cards[:for_cards]]
    if events:
        below += [rule("Events", width), *events[:for_events]]
    if room - len(below) < 5:  # containers come first
        below = below[: max(0, room - 5)]
    return [*cpus, *_padded(_containers(scene, view, width, room - len(below)), room - len(below)), *below]


def _padded(lines: list[Line], room: int) -> list[Line]:
    return [*lines, *[()] * (room - len(lines))]


def _cpus(scene: Scene, width: int, room: int) -> list[Line]:
    return [*cpu_map.overview(scene, width, room - 1), *_legend(scene)]


def _legend(scene: Scene) -> list[Line]:
    shown = cpu_map.legend(scene)
    return [shown] if shown else []


def _containers(scene: Scene, view: View, width: int, room: int) -> list[Line]:
    rows = chosen(scene, view.text, view.sort, reverse=view.reverse)
    first, end = window(len(rows), max(0, room - 2), view.skipped)
    omitted = scene.told.omitted if scene.told else 0
    about = f"{first + 1}-{end} of {counted(len(rows) + omitted, 'container')}" if rows else ""
    order = f"by {view.sort.value}{', reversed' if view.reverse else ''}"
    chosen_by = f", with “{view.text}”" if view.text else ""
    head = [rule("Containers", width, f"{about} {order}{chosen_by}".strip()), tables.container_head(width, view.sort)]
    body = [tables.container_line(scene, row, width) for row in rows[first:end]]
    if not rows:
        body = [line((_nobody(scene, view), QUIET))]
    return [*head, *body][: max(0, room)]


def _nobody(scene: Scene, view: View) -> str:
    if scene.told is None:
        return "waiting for the daemon" if not scene.problem else "no answer"
    return f"no container has “{view.text}” in its name" if view.text else "no containers"


def _scrolled(title: str, lines: Sequence[Line], view: View, width: int, room: int) -> list[Line]:
    first, end = window(len(lines), room - 1, view.skipped)
    about = f"lines {first + 1}-{end} of {len(lines)}" if end - first < len(lines) else ""
    return [rule(title, width, about), *lines[first:end]]


def _more(shown: int, count: int) -> str:
    return f"{count - shown} more lines: 4" if shown < count else ""
