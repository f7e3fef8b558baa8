"""``criproxy usage``: shows how much each container uses of which card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

import click

from criproxy.cli.client import PATIENCE_S, Daemon, ask, control_socket_option
from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render import words
from criproxy.cli.render.console import HEADING, NOTE, QUIET, TROUBLE, table
from criproxy.cli.repeated_output import Values, show_answer, watch_options
from criproxy.devices.usage.reports import MINUTE_S, POINTS
from criproxy.model.text.amounts import counted
from criproxy.model.workload import SHORT_ID


@click.command(short_help="Show how much of each card the containers use.")
@click.option("--history", is_flag=True, help="Also show the last hour, minute by minute.")
@watch_options
@control_socket_option
def command(*, history: bool, watch: bool, interval_s: float, output: str, control_socket: Daemon) -> None:
    """Show how much memory and compute of each card is in use, and how much of its quota each container uses.

    The command asks the daemon, to which the device plugin reports the usage. If no daemon answers, it fails, because
    the usage is not stored on disk. Processes outside of containers are shown as a sum for each card. For containers
    over their quota, the list shows since when they have exceeded it.
    """
    query = partial(ask, control_socket, "usage", {"history": history}, PATIENCE_S)
    show_answer(query, output, render, watch=watch, interval_s=interval_s)


WIDE = 120
"""The minimum width for complete ids of cards."""
BARS = "▁▂▃▄▅▆▇█"
MOST_UNKNOWN = 5
UNGUARDED = "the policy file has no devices section: criproxy does not know which container has which card"
NO_WATCHER = (
    "card usage is unknown: no watcher has reported since the daemon started. The watcher runs in criproxy "
    "device-plugin, for the classes that the policy file lists under devices.plugin.usage"
)


@words.renders
def render(values: Values, width: int, height: int | None = None) -> Iterator[rich.RenderableType]:
    """Render an answer to `usage` for *width* columns."""
    yield rich.Text(f"criproxy {values['version']}; {values['time'][:19]}Z{_node(values)}")
    yield from _state(values)
    wide, containers = width >= WIDE, values["containers"]
    if values["cards"]:
        yield from (rich.Text(), _cards(values["cards"], wide=wide))
    yield rich.Text()
    yield _containers(containers, wide=wide) if containers else rich.Text("no container has a card", style=QUIET)
    yield from (rich.Text(line, style=TROUBLE) for line in _over(containers))
    strangers = (*_first(_not_allocated(containers)), *_first(_unknown(values["unknown_containers"])))
    yield from (rich.Text(line, style=NOTE) for line in strangers)
    yield from map(rich.Text, _profiles(values["profiles"]))
    yield from _history(values)


def _node(values: Values) -> str:
    node = values["node"]
    known = {"CPU": node["cpu_ratio"], "memory": node["memory_ratio"]}
    shown = ", ".join(f"{name} {100 * ratio:.0f} %" for name, ratio in known.items() if ratio is not None)
    return f"; node usage: {shown}" if shown else ""


def _state(values: Values) -> Iterator[rich.Text]:
    """Render whether the data is current, and what is unknown."""
    watcher = values["watcher"]
    if not values["guarded"]:
        yield rich.Text(UNGUARDED, style=NOTE)
    if watcher["state"] == "none":
        yield rich.Text(NO_WATCHER, style=NOTE)
    elif watcher["state"] == "silent":
        text = f"card usage is unknown: the watcher has not reported since {watcher['reported'][:19]}Z"
        yield rich.Text(f"{text}; is criproxy device-plugin running?", style=TROUBLE)
    for each in watcher["classes"] if watcher["state"] == "reporting" else ():  # else it is why, not what was last
        if each["problem"]:
            yield rich.Text(f"the usage of {each['class']} is unknown: {each['problem']}", style=NOTE)
        for card, problem in each["unread_cards"].items():
            yield rich.Text(f"the usage of {card} is unknown: {problem}", style=NOTE)


_NUMBERS = ("MEMORY MiB", "CORES %", "NO CONTAINER")


def _cards(cards: Sequence[Values], *, wide: bool) -> rich.Table:
    found = table("CLASS", "CARD", "MEMORY MiB", "CORES %", "NO CONTAINER", right=_NUMBERS)
    for card in cards:
        other = card["not_a_container"]
        found.add_row(
            card["class"],
            _id(card["id"], wide=wide),
            _pair(card["memory_mib"], card["total_mib"]),
            _number(card["cores_percent"]),
            f"{other['memory_mib']} MiB" if other["memory_mib"] else "-",
        )
    return found


def _containers(containers: Sequence[Values], *, wide: bool) -> rich.Table:
    found = table("CONTAINER", "CARD", "PROFILE", "MEMORY MiB", "CORES %", right=_NUMBERS)
    for each in containers:
        cells = [words.short_title(each), _id(each["card"], wide=wide), each["profile"] or "-"]
        memory = _pair(each["memory_mib"], each["memory_granted_mib"])
        cores = _pair(each["cores_percent"], each["cores_granted_percent"])
        over = [TROUBLE if quantity in each["over_since"] else "" for quantity in ("memory", "cores")]
        found.add_row(*cells, rich.Text(memory, style=over[0]), rich.Text(cores, style=over[1]))
    return found


def _over(containers: Sequence[Values]) -> Iterator[str]:
    """Yield a line for each container that is over its quota."""
    for each in containers:
        for quantity, since in sorted(each["over_since"].items()):
            quota = _QUOTAS.get(quantity, quantity)
            yield f"{words.title(each)} has been over its {quota} quota since {since[:19]}Z{_done(each, quantity)}"


_QUOTAS = {"cores": "compute"}
"""The names of quotas in texts, if they differ from the name of the quantity."""


def _done(each: Values, quantity: str) -> str:
    """Return what is done about this quota; an earlier daemon does not say for which quota an action is."""
    actions = [
        _action(one) for one in each["actions"] if not one["ended"] and one.get("quantity", quantity) == quantity
    ]
    return f"; action: {', '.join(actions)}" if actions else ""


def _action(one: Values) -> str:
    """What is done, and how far that is."""
    if one["state"] != "uses":
        return f"{one['action']} ({one['state']})"
    return "observe (only reported)" if one["action"] == "observe" else str(one["action"])


def _not_allocated(containers: Sequence[Values]) -> Iterator[str]:
    """Yield a line for each container that uses a card which is not allocated to it, such as a privileged one."""
    for each in containers:
        if not each.get("resource", "?"):
            yield f"{words.title(each)} uses {each['memory_mib']} MiB of {each['card']}, which is not allocated to it"


def _unknown(found: Sequence[Values]) -> Iterator[str]:
    """Yield a line about containers that only the watcher knows."""
    for each in found:
        text = f"container {each['id'][:SHORT_ID]}, which criproxy does not know, uses {each['memory_mib']} MiB"
        yield f"{text} of {each['card']}"


def _first(lines: Iterator[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    first, more = [*islice(lines, MOST_UNKNOWN)], len([*lines])
    return [*first, f"… and {more} more"] if more else first


def _profiles(profiles: Sequence[Values]) -> Iterator[str]:
    """Yield a line for each profile."""
    for each in profiles:
        if not each.get("offered", True):
            yield f"{each['profile']}: {each['given']} allocated, no longer offered"
            continue
        yield f"{each['profile']}: {counted(each['vgpus'], 'vGPU')}, {each['given']} allocated, {each['free']} free"


def _history(values: Values) -> Iterator[rich.RenderableType]:
    """Render two lines for each series: the used memory, minute by minute."""
    totals = {(card["class"], card["id"]): card["total_mib"] for card in values["cards"]}
    granted = {(each["id"], each["card"]): each["memory_granted_mib"] for each in values["containers"]}
    for series in values["history"]:
        points = {int(words.seconds(each["time"]) // MINUTE_S): each["memory_mib"] for each in series["points"]}
        least, most = min(points.values()), max(points.values())
        whole = totals.get((series["class"], series["card"])) or most
        if series["id"]:
            whole = granted.get((series["id"], series["card"])) or whole
        name = series["title"] or (f"container {series['id'][:SHORT_ID]}" if series["id"] else "total")
        yield rich.Text(f"\n{name} on {series['card']}: {least} to {most} of {whole} MiB", style=HEADING)
        yield rich.Text(_bars(points, whole, int(words.seconds(values["time"]) // MINUTE_S)))


def _bars(points: dict[int, int], whole: int, now: int) -> str:
    """Return a character for each minute of the last hour; a blank without a report."""
    minutes = [points.get(minute) for minute in range(now - POINTS + 1, now + 1)]
    return "".join(" " if each is None else BARS[min(each * len(BARS) // max(whole, 1), 7)] for each in minutes)


def _id(text: str, *, wide: bool) -> str:
    return text if wide or len(text) <= SHORT_ID else text[:SHORT_ID]


def _pair(used: float | None, granted: float | None) -> str:
    """Format a used and a granted amount."""
    return _number(used) if granted is None else f"{_number(used)} of {_number(granted)}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"
