"""One frame of `criproxy top`: which part gets how many lines of the screen. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from criproxy.api.views.top.scene import Scene, chosen
from criproxy.cli.screen.render import cpu_map, tables
from criproxy.cli.screen.render.head import head_lines
from criproxy.cli.screen.render.help import help_lines
from criproxy.cli.screen.render.lines import BAR, HEADING, NOTE, QUIET, Line, Piece, cropped, line, rule
from criproxy.cli.screen.render.view import Page, View, window
from criproxy.model.text.amounts import counted

LEAST_WIDTH, LEAST_HEIGHT = 40, 10
LEAST_LIST = 7
"""Lines that the list of containers has, with its two headings, before anything else gets more."""
LIST_HEADINGS = 2
"""The lines above the containers: the heading of the part, and those of the columns."""
_TITLES = {Page.CPUS: "CPUs", Page.DEVICES: "Devices", Page.EVENTS: "Events"}
"""The pages that are only a list of lines."""


def frame(scene: Scene, view: View, width: int, height: int) -> list[Line]:
    """The lines of a screen: exactly *height*, none wider than *width*."""
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        text = f"criproxy top needs {LEAST_WIDTH}x{LEAST_HEIGHT}"
        return [cropped(line(text), width), *[()] * (height - 1)][:height]
    head = head_lines(scene, width)
    room = height - len(head) - 1
    body = help_lines(width) if view.helping else _page(scene, view, width, room)
    body = [cropped(each, width) for each in body[:room]]
    return [*head, *body, *[()] * (room - len(body)), _foot(scene, view, width)]


def once(scene: Scene, view: View, width: int) -> list[Line]:
    """Everything, in as many lines as it takes: for what is no screen."""
    rows = chosen(scene, view.text, view.sort, reverse=view.reverse)
    lines = [*head_lines(scene, width), *_cpus(scene, min(width, 160), 1000, 1000), rule("Containers", min(width, 80))]
    lines += [tables.container_head(width, view.sort), *(tables.container_line(scene, row, width) for row in rows)]
    if scene.cards:
        lines += [rule("Devices", min(width, 80)), *tables.card_lines(scene.cards, min(width, 160))]
    if scene.events:
        lines += [rule("Events", min(width, 80)), *tables.event_lines(scene.events, width)]
    return lines


@dataclass(frozen=True, slots=True)
class Extent:
    """How long the list that scrolls is."""

    count: int
    """Its lines."""
    room: int
    """How many of them the screen shows at once: how far Page Down goes."""

    @property
    def last(self) -> int:
        """How many lines are above the screen when it shows the last one."""
        return max(0, self.count - self.room)


def extent(scene: Scene, view: View, width: int, height: int) -> Extent:
    """The list that scrolls on a screen, as `frame` shows it."""
    room = height - len(head_lines(scene, width)) - 1
    if view.page is Page.ALL:
        room = _parts(scene, width, room).room
    if view.page in (Page.ALL, Page.CONTAINERS):
        count, room = len(chosen(scene, view.text, view.sort)), room - LIST_HEADINGS
    else:
        count, room = len(_lines(scene, view.page, width)), room - 1
    return Extent(count, max(1, room))


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
        pieces += [(" FROZEN, press space to continue ", NOTE)]
    pieces += [("  / filter  h help  q quit", QUIET)]
    return cropped(line(*pieces), width)


def _page(scene: Scene, view: View, width: int, room: int) -> list[Line]:
    if view.page is Page.CONTAINERS:
        return _containers(scene, view, width, room)
    if view.page is Page.ALL:
        return _all(scene, view, width, room)
    return _scrolled(_TITLES[view.page], _lines(scene, view.page, width), view, width, room)


def _lines(scene: Scene, page: Page, width: int) -> list[Line]:
    """What a page of `_TITLES` has below its heading."""
    if page is Page.CPUS:
        return [*_legend(scene), *cpu_map.gauges(scene, width)]
    if page is Page.DEVICES:
        return tables.card_lines(scene.cards, width) or [line(("no cards are known", QUIET))]
    return tables.event_lines(scene.events, width) or [line(("nothing has happened yet", QUIET))]


@dataclass(frozen=True, slots=True)
class _Parts:
    """The page with a bit of everything."""

    cpus: list[Line]
    room: int
    """The lines that are left for containers, with their headings."""
    below: list[Line]
    """Devices and events."""


def _parts(scene: Scene, width: int, room: int) -> _Parts:
    """Divide *room*: CPUs at most half of the screen, then devices and events, the rest containers."""
    cpus = _cpus(scene, width, max(2, room // 2 - 1), max(2, room - LEAST_LIST))
    room -= len(cpus)
    cards = tables.card_lines(scene.cards, width)
    events = tables.event_lines(scene.events, width)
    wanted = min(len(cards), max(2, room // 4)), min(len(events), max(2, room // 5))
    for_cards, for_events = _fitting(*wanted, room - LEAST_LIST)  # containers come first
    below: list[Line] = []
    if for_cards:
        below += [rule("Devices", width, _more(for_cards, len(cards))), *cards[:for_cards]]
    if for_events:
        below += [rule("Events", width), *events[:for_events]]
    return _Parts(cpus, room - len(below), below)


def _all(scene: Scene, view: View, width: int, room: int) -> list[Line]:
    parts = _parts(scene, width, room)
    return [*parts.cpus, *_padded(_containers(scene, view, width, parts.room), parts.room), *parts.below]


def _fitting(one: int, other: int, room: int) -> tuple[int, int]:
    """How many lines two parts get that want so many: the longer one gives way; one without lines has no head."""
    while one + other and one + bool(one) + other + bool(other) > room:
        one, other = (one - 1, other) if one >= other else (one, other - 1)
    return one, other


def _padded(lines: list[Line], room: int) -> list[Line]:
    return [*lines, *[()] * (room - len(lines))]


def _cpus(scene: Scene, width: int, room: int, most: int) -> list[Line]:
    return [*cpu_map.overview(scene, width, room - 1, most - 1), *_legend(scene)]


def _legend(scene: Scene) -> list[Line]:
    shown = cpu_map.legend(scene)
    return [shown] if shown else []


def _containers(scene: Scene, view: View, width: int, room: int) -> list[Line]:
    rows = chosen(scene, view.text, view.sort, reverse=view.reverse)
    first, end = window(len(rows), max(0, room - LIST_HEADINGS), view.skipped)
    omitted = scene.told.omitted if scene.told else 0
    about = f"{first + 1}-{end} of {len(rows) + omitted}, " if rows else ""
    order = f"sorted by {view.sort.value}{', reversed' if view.reverse else ''}"
    chosen_by = f", with “{view.text}”" if view.text else ""
    head = [rule("Containers", width, f"{about}{order}{chosen_by}"), tables.container_head(width, view.sort)]
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
    return f"{counted(count - shown, 'more line')}; press 4 to show all" if shown < count else ""
