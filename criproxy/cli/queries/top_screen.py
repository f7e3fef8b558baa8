"""One frame of `criproxy top`, as lines of a terminal. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import ascii_letters, digits
from typing import Any

from rich.console import Console
from rich.text import Text

from criproxy.api.views.cpu_blocks import Block
from criproxy.cli.queries import usage
from criproxy.cli.queries.events import BAD
from criproxy.cli.queries.events import line as event_line
from criproxy.cli.render import words
from criproxy.cli.render.console import HEADING, NOTE, QUIET, TROUBLE
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.machine.hardware import MemoryUse
from criproxy.model.text.amounts import format_bytes

Values = dict[str, Any]
Marks = dict[int, tuple[str, str]]
"""By CPU, its mark, and what it is."""
MARKS = ascii_letters + digits
MANY = "+"
"""The mark of containers for which there is no other."""
SHARED, RESERVED, KEPT, FORBIDDEN, NEW, UNKNOWN = "·", "=", "~", "-", "x", "?"
PAGES = ("all", "CPUs", "containers", "devices", "events")
SORTS = {"c": "CPU use", "m": "memory", "n": "name", "x": "exclusive CPUs"}
LEAST_WIDTH, LEAST_HEIGHT = 40, 10
MOST_WIDTH = 120
"""Of lines that fill the screen: a pipe has no width."""
MOST_NOTICES = 2
WIDE, NARROW = 110, 60
"""Widths from which there are more columns about containers, and below which there are fewer."""
_STYLES = {SHARED: "blue", RESERVED: "bright_black", KEPT: "white", FORBIDDEN: QUIET, NEW: TROUBLE, UNKNOWN: QUIET}
_COLOURS = ("green", "cyan", "magenta", "yellow", "bright_green", "bright_cyan", "bright_magenta", "bright_yellow")
_LEGEND = {SHARED: "shared", RESERVED: "reserved", KEPT: "kept for a pod", FORBIDDEN: "not for pods"}
_GAUGE = 39
"""Columns for a CPU with its gauge and the name of its owner."""
_HELP = (
    ("1 to 5, Tab", "everything, CPUs, containers, devices, events"),
    ("c m n x", "sort by CPU use, memory, name, number of exclusive CPUs"),
    ("r", "reverse the order"),
    ("/", "show only containers with a text in their names; Esc: all"),
    ("arrows, PgUp, PgDn", "scroll; also j, k, Home, End"),
    ("space", "freeze the screen, or continue"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("bar", "the load of a CPU; its colour shows its owner"),
    ("a, b …", "exclusive to the container with this symbol in the list"),
    ("· = ~", "shared, reserved, kept for a pod whose containers have ended"),
    ("- x", "not for pods; has just come online"),
    ("CPU", "CPU time that a container uses; 1.00 is one fully used CPU"),
    ("USE", "the same in percent of its exclusive CPUs or its limit"),
    ("MEMORY", "working set, as the kubelet counts it"),
    ("", "Press any key to go back."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the user has chosen to see."""

    page: int = 0
    """Index in `PAGES`."""
    sort: str = "c"
    reverse: bool = False
    text: str = ""
    """What the names of the shown containers contain."""
    typing: bool = False
    """Whether keys go into that text."""
    skipped: int = 0
    """How many lines of the list are above the screen."""
    frozen: bool = False
    helping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The node at one moment; all texts are printable."""

    at_s: float = 0.0
    clock: str = ""
    host: str = ""
    status: Values | None = None
    """The answer to `status`; None: there has been none."""
    events: Sequence[Values] = ()
    usage: Values | None = None
    problem: str = ""
    """Why the answers are old, or missing."""
    load: Mapping[int, float] = field(default_factory=dict)
    """By CPU, from 0 to 1; without CPUs whose load is unknown."""
    cpu_milli: Mapping[str, int] = field(default_factory=dict)
    """By container id."""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    memory: MemoryUse | None = None
    blocks: Sequence[Block] = ()
    marks: Mapping[str, str] = field(default_factory=dict)
    """By title of a container with exclusive CPUs."""


def pressed(view: View, key: str, step: int) -> View | None:
    """Return the view after a *key*, a character or the name of a key; None to quit. *step*: lines of a page."""
    if view.typing:
        return _typed(view, key)
    if key in ("q", "ctrl-c", "ctrl-d"):
        return None
    if view.helping:
        return replace(view, helping=False)
    moves = {"down": 1, "j": 1, "up": -1, "k": -1, "pagedown": step, "pageup": -step, "end": 1 << 30, "home": -1 << 30}
    turns = {"tab": 1, "right": 1, "backtab": -1, "left": -1}
    changes: dict[str, dict[str, Any]] = {
        **{move: {"skipped": max(0, view.skipped + by)} for move, by in moves.items()},
        **{turn: {"page": (view.page + by) % len(PAGES), "skipped": 0} for turn, by in turns.items()},
        **{sort: {"sort": sort, "reverse": False, "skipped": 0} for sort in SORTS},
        **{str(number + 1): {"page": number, "skipped": 0} for number in range(len(PAGES))},
        "r": {"reverse": not view.reverse, "skipped": 0},
        "/": {"typing": True},
        "escape": {"text": "", "page": 0, "skipped": 0},
        " ": {"frozen": not view.frozen},
        "h": {"helping": True},
        "?": {"helping": True},
    }
    return replace(view, **changes.get(key, {}))


def _typed(view: View, key: str) -> View | None:
    if key == "ctrl-c":
        return None
    changes: dict[str, dict[str, Any]] = {
        "enter": {"typing": False},
        "escape": {"typing": False, "text": "", "skipped": 0},
        "backspace": {"text": view.text[:-1], "skipped": 0},
    }
    typed = {"text": view.text + key, "skipped": 0} if len(key) == 1 else {}
    return replace(view, **changes.get(key, typed))


def marked(rows: Iterable[Values], before: Mapping[str, str]) -> dict[str, str]:
    """Return the marks of the containers with exclusive CPUs, which keep those that they had *before*."""
    owners = {words.title(row): min(parse_cpuset(row["exclusive_cpus"])) for row in rows if row["exclusive_cpus"]}
    marks = {title: before[title] for title in owners if before.get(title, MANY) != MANY}
    unused = iter([mark for mark in MARKS if mark not in set(marks.values())])
    for title in sorted(owners, key=owners.__getitem__):
        if title not in marks:
            marks[title] = next(unused, MANY)
    return marks


def frame(scene: Scene, view: View, console: Console, width: int, height: int) -> tuple[list[Text], int]:
    """Return the lines of a screen, exactly *height* and none wider than *width*; and how many are above it."""
    skipped = view.skipped
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        lines = [Text(f"criproxy top needs {LEAST_WIDTH}x{LEAST_HEIGHT}")]
    else:
        head = _head(scene, width)
        room = height - len(head) - 1
        body = [Text.assemble((keys.ljust(20), HEADING), text) for keys, text in _HELP]
        if not view.helping:
            body, skipped = _page(scene, view, console, width, room)
        lines = [*head, *body[:room]]
        lines += [*[Text()] * (height - len(lines) - 1), _foot(view)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return [*lines[:height], *[Text()] * (height - len(lines))], skipped


def chosen(scene: Scene, view: View) -> list[Values]:
    """Return the containers that have not ended and have the text of *view* in their names, in its order."""
    rows = [row for row in (scene.status or {"containers": []})["containers"] if row["state"] != "exited"]
    rows = [row for row in rows if view.text.casefold() in words.title(row).casefold()]
    rows.sort(key=words.title)
    measures = {
        "c": lambda row: scene.cpu_milli.get(row["id"], -1),
        "m": lambda row: scene.memory_bytes.get(row["id"], -1),
        "x": lambda row: len(parse_cpuset(row["exclusive_cpus"])),
    }
    if view.sort in measures:
        rows.sort(key=measures[view.sort], reverse=True)
    return rows[::-1] if view.reverse else rows


def _head(scene: Scene, width: int) -> list[Text]:
    """Which node it is, how much of it is in use, and what is wrong."""
    status = scene.status
    title = f" criproxy top  {scene.host}"
    if status:
        is_up = status["started"] and status["source"] == "daemon"
        title += f"  policy {status['policy']}" if status["policy"] else ""
        title += f"  up {words.ago(status['started'], scene.at_s)}" if is_up else ""
    lines = [
        Text(f"{title} ".ljust(min(width, MOST_WIDTH) - len(scene.clock) - 1) + f"{scene.clock} ", style="reverse")
    ]
    load = sum(scene.load.values()) / len(scene.load) if scene.load else None
    node = Text.assemble((" CPU ", QUIET), (_gauge(load, 10), _heat(load)), f" {_percent(load)}")
    if scene.memory and scene.memory.total_bytes:
        ratio = 1 - scene.memory.available_bytes / scene.memory.total_bytes
        node.append_text(Text.assemble(("  memory ", QUIET), (_gauge(ratio, 10), _heat(ratio)), f" {_percent(ratio)}"))
    if status:
        cpus, capacity = status["cpus"], status.get("cpu_counts", {}).get("capacity", "?")
        node.append(f"  exclusive {len(parse_cpuset(cpus['exclusive']))} of {'?' if capacity is None else capacity}")
        node.append(f"  free {'?' if cpus['free'] is None else len(parse_cpuset(cpus['free']))}")
    lines += [node, *([Text(scene.problem, style=TROUBLE)] if scene.problem else [])]
    wrong = [notice["text"] for notice in (status or {"notices": []})["notices"] if notice["wrong"]]
    lines += [Text(f"WRONG: {text}", style=TROUBLE) for text in wrong[:MOST_NOTICES] if text != scene.problem]
    if len(wrong) > MOST_NOTICES:
        lines.append(Text(f"{len(wrong) - MOST_NOTICES} more; criproxy status --check", style=NOTE))
    return lines


def _foot(view: View) -> Text:
    if view.typing:
        return Text.assemble(("filter: ", HEADING), view.text, "█", ("   Enter keeps it, Esc clears it", QUIET))
    pages = [(f" {at + 1} {name} ", "reverse" if at == view.page else QUIET) for at, name in enumerate(PAGES)]
    frozen = (" FROZEN, press space to continue ", NOTE) if view.frozen else ""
    return Text.assemble(*pages, frozen, ("  / filter  h help  q quit", QUIET))


def _page(scene: Scene, view: View, console: Console, width: int, room: int) -> tuple[list[Text], int]:
    match PAGES[view.page]:
        case "all":
            return _all(scene, view, console, width, room)
        case "containers":
            return _containers(scene, view, width, room)
        case "CPUs":
            marks = _mark_of(scene)
            lines = [_legend(marks), *_gauges(scene, marks, width)]
        case "devices":
            lines = _devices(scene, console, width) or [Text("no cards are known", style=QUIET)]
        case _:
            lines = _events(scene) or [Text("nothing has happened yet", style=QUIET)]
    first = max(0, min(view.skipped, len(lines) - room + 1))
    title = PAGES[view.page]
    return [_rule(title[0].upper() + title[1:], width), *lines[first : first + room - 1]], first


def _all(scene: Scene, view: View, console: Console, width: int, room: int) -> tuple[list[Text], int]:
    """A bit of everything: CPUs at most half of the screen, the rest containers, with some devices and events."""
    cpus = _cpu_map(scene, width, room // 2)
    below: list[Text] = []
    for title, lines in (("Devices", _devices(scene, console, width)), ("Events", _events(scene))):
        if lines and room - len(cpus) - len(below) > LEAST_HEIGHT:
            below += [_rule(title, width), *lines[: max(1, room // 6)]]
    left = room - len(cpus) - len(below)
    containers, first = _containers(scene, view, width, left)
    return [*cpus, *containers, *[Text()] * (left - len(containers)), *below], first


def _rule(title: str, width: int, more: str = "") -> Text:
    text = Text.assemble(("── ", QUIET), (title, HEADING), (f" {more} " if more else " ", QUIET))
    return text.append("─" * max(0, min(width, MOST_WIDTH) - len(text)), style=QUIET)


def _mark_of(scene: Scene) -> Marks:
    """Return the mark of each CPU, and what it is: the name of its owner, or a word."""
    status = scene.status or {"cpus": {}, "containers": []}
    other = (FORBIDDEN, _LEGEND[FORBIDDEN]) if scene.status else (UNKNOWN, "")
    found = dict.fromkeys((cpu for block in scene.blocks for cpu in block.cpus), other)
    for name, mark in (("offline", NEW), ("allowed", SHARED), ("reserved", RESERVED)):
        found |= dict.fromkeys(parse_cpuset(status["cpus"].get(name) or ""), (mark, _LEGEND.get(mark, "")))
    for kept in status.get("kept", ()):
        found |= dict.fromkeys(parse_cpuset(kept["cpus"]), (KEPT, _LEGEND[KEPT]))
    for row in status["containers"]:
        if row["exclusive_cpus"] and row["state"] != "exited":
            title = words.title(row)
            found |= dict.fromkeys(parse_cpuset(row["exclusive_cpus"]), (scene.marks.get(title, MANY), title))
    return found


def _style(mark: str) -> str:
    return _STYLES.get(mark) or _COLOURS[MARKS.find(mark) % len(_COLOURS)]


def _cpu_map(scene: Scene, width: int, most: int) -> list[Text]:
    """Return a bar for each CPU, and below it the mark of its owner if there is room; in at most *most* lines."""
    marks, label = _mark_of(scene), max((len(_name(block, scene)) for block in scene.blocks), default=0) + 1
    lines: list[Text] = []
    for has_marks in (True, False):
        lines = [line for block in scene.blocks for line in _bars(scene, block, marks, label, width, has_marks)]
        if len(lines) < most:
            break
    if len(lines) >= most:
        hidden = len(lines) - most + 2
        lines = [*lines[: most - 2], Text(f"… {hidden} more lines; press 2 to show all CPUs", style=NOTE)]
    return [*lines, _legend(marks)]


def _bars(scene: Scene, block: Block, marks: Marks, label: int, width: int, has_marks: bool) -> Iterable[Text]:
    cells: list[int | None] = []
    for group in block.groups:  # gaps between level 3 caches
        cells += [*([None] if cells else []), *group]
    size = max(8, width - label)
    for at in range(0, len(cells), size):
        bars = Text((_name(block, scene) if at == 0 else "").ljust(label), style=QUIET)
        below = Text(" " * label)
        for cpu in cells[at : at + size]:
            mark = " " if cpu is None else marks[cpu][0]
            load = None if cpu is None else scene.load.get(cpu)
            height = "" if load is None else usage.BARS[min(int(load * len(usage.BARS)), len(usage.BARS) - 1)]
            bars.append(" " if cpu is None else height or "?", style=_style(mark))
            below.append(mark, style=_style(mark))
        yield from (bars, below) if has_marks else (bars,)


def _name(block: Block, scene: Scene) -> str:
    has_sockets = len({each.package for each in scene.blocks}) > 1
    socket = f"socket {block.package} " if has_sockets and block.package >= 0 else ""
    return f"{socket}node {block.node}" if block.node >= 0 else f"{socket}no node"


def _legend(marks: Marks) -> Text:
    shown = {mark for mark, _ in marks.values()}
    owners = [("a, b … exclusive   ", QUIET)] if shown & {*MARKS} else []
    return Text.assemble(
        *owners, *((f"{mark} {text}   ", _style(mark)) for mark, text in _LEGEND.items() if mark in shown)
    )


def _gauges(scene: Scene, marks: Marks, width: int) -> list[Text]:
    """Return a gauge with the owner's name for each CPU, several in a line."""
    columns = max(1, width // _GAUGE)
    lines: list[Text] = []
    for block in scene.blocks:
        lines.append(Text(_name(block, scene), style=HEADING))
        for at in range(0, len(block.cpus), columns):
            line = Text()
            for cpu in block.cpus[at : at + columns]:
                (mark, text), load = marks[cpu], scene.load.get(cpu)
                line.append(f"{cpu:4} ", style=QUIET).append(_gauge(load, 8), style=_style(mark))
                line.append(f"{_percent(load):>5} ").append(f"{mark} {_middle(text, _GAUGE - 22):{_GAUGE - 21}}")
            lines.append(line)
    return lines


def _containers(scene: Scene, view: View, width: int, room: int) -> tuple[list[Text], int]:
    rows = chosen(scene, view)
    first = max(0, min(view.skipped, len(rows) - room + 2))
    shown = rows[first : first + max(0, room - 2)]
    count = len(rows) + (scene.status or {}).get("omitted", 0)
    about = f"{first + 1}-{first + len(shown)} of {count}, " if rows else ""
    order = f"sorted by {SORTS[view.sort]}{', reversed' if view.reverse else ''}"
    filtered = f", with “{view.text}”" if view.text else ""
    lines = [_rule("Containers", width, f"{about}{order}{filtered}"), _columns(width)]
    if not rows:
        waiting = "no answer" if scene.problem else "waiting for the daemon"
        lines.append(Text("no containers" if scene.status else waiting, style=QUIET))
    return [*lines, *(_container(scene, row, width) for row in shown)][: max(0, room)], first


def _columns(width: int) -> Text:
    names = " " + "CPU".rjust(8) + "USE".rjust(6)
    names += "" if width < NARROW else "MEMORY".rjust(10) + (" LIMIT QOS   STATE   " if width >= WIDE else "")
    cpus = "" if width < NARROW else "CPUS".ljust(22 if width >= WIDE else 14)
    return Text(f"{names} {cpus} CONTAINER", style=HEADING)


def _container(scene: Scene, row: Values, width: int) -> Text:
    used, memory = scene.cpu_milli.get(row["id"]), scene.memory_bytes.get(row["id"])
    exclusive, limit_bytes = parse_cpuset(row["exclusive_cpus"]), row["memory_limit_bytes"]
    most_milli = min(filter(None, (len(exclusive) * 1000, row["cpu_limit_milli"])), default=None)
    ratio = used / most_milli if used is not None and most_milli else None
    mark = scene.marks.get(words.title(row), " ")
    line = Text(mark, style=_style(mark)).append("-".rjust(8) if used is None else f"{used / 1000:8.2f}")
    line.append(("" if ratio is None else _percent(ratio)).rjust(6), style=_alarm(ratio))
    if width >= NARROW:
        of_limit = memory / limit_bytes if memory is not None and limit_bytes else None
        line.append(("-" if memory is None else format_bytes(memory)).rjust(10), style=_alarm(of_limit))
        if width >= WIDE:
            limit = format_bytes(limit_bytes) if limit_bytes else "-"
            line.append(f" {limit:>7} {words.QOS.get(row['qos'], row['qos']):5} {row['state']:8}", style=QUIET)
        more = "+shared" if parse_cpuset(row["cpus"]) - exclusive else ""
        place = f"{format_cpuset(exclusive)}{more}" if exclusive else "shared" if row["placed"] else "not placed"
        style = TROUBLE if not row["in_place"] else "" if exclusive else QUIET
        size = 22 if width >= WIDE else 14
        line.append(f" {_middle(place if row['in_place'] else f'{place} !', size):{size}}", style=style)
    why = "" if row["in_place"] else f"  {row['error'] or 'not there yet'}"
    room = width - len(line) - 1
    line.append(f" {_middle(words.title(row), max(room - len(why), room // 2))}")
    return line.append(why, style=TROUBLE)


def _devices(scene: Scene, console: Console, width: int) -> list[Text]:
    if not scene.usage or not scene.usage["cards"]:
        return []
    options = console.options.update(width=width, height=None)
    lines = console.render_lines(usage.render(scene.usage, width), options, pad=False)
    return [Text.assemble(*((segment.text, segment.style or "") for segment in line)) for line in lines]


def _events(scene: Scene) -> list[Text]:
    """Return the newest first."""
    return [
        Text(words.clock(event["time"]) + event_line(event)[24:], style=TROUBLE if event["kind"] in BAD else "")
        for event in reversed(scene.events)
    ]


def _gauge(ratio: float | None, width: int) -> str:
    return ("" if ratio is None else "█" * round(min(max(ratio, 0.0), 1.0) * width)).ljust(width)


def _percent(ratio: float | None) -> str:
    return "?" if ratio is None else f"{ratio * 100:.0f}%"


def _heat(ratio: float | None) -> str:
    return "green" if ratio is None or ratio < 0.7 else "yellow" if ratio < 0.9 else "red"


def _alarm(ratio: float | None) -> str:
    return "" if ratio is None or ratio < 0.9 else NOTE if ratio < 0.98 else TROUBLE


def _middle(text: str, width: int) -> str:
    """Return *text* without its middle if it is too long: related names often differ only at the end."""
    if len(text) <= width:
        return text
    end = max(0, width - 1) // 2
    return f"{text[: max(0, width - 1 - end)]}…{text[len(text) - end :]}"
