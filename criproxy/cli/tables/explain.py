"""`criproxy explain` on a terminal: the current state first, then the history."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from criproxy.cli.render import words
from criproxy.cli.render.console import HEADING, NOTE, QUIET, TROUBLE
from criproxy.cli.render.topology_words import count
from criproxy.cli.tables.candidates import render_choices
from criproxy.cli.tables.device_plugin import quota_of
from criproxy.model.cpuset import cpus_text
from criproxy.model.text.bounded import bounded, bounded_text

Values = dict[str, Any]
WHY = {"refused": "Why it was refused", "gone": "Why it ran there", "exited": "Why it ran there"}
MAX_EARLIER_CHARS = 500
"""The maximum length of the text about each of up to a hundred other containers of the same name."""
BAD = frozenset({"refused", "passed", "failed", "lost", "drift", "unknown"})
"""The kinds of events that are highlighted, since they are signs of a problem."""


def render(values: Values) -> RenderableType:
    """Render an answer to `explain`."""
    values = bounded(values)
    row = values["container"]
    parts: list[RenderableType] = [Text(words.title(row), style=HEADING), *_now(row)]
    parts += [Text(f"WRONG: {each['text']}", style=TROUBLE) for each in values["notices"] if each["wrong"]]
    parts += [Text(f"Note: {each['text']}", style=NOTE) for each in values["notices"] if not each["wrong"]]
    if short := values.get("should_own"):  # missing in answers of earlier versions
        parts.append(Text(_should_have(short), style=TROUBLE))
    parts += [Text(f"It has been {quota_of(each, values)}", style=TROUBLE) for each in values.get("over_quota", ())]
    if values["waits_for"]:
        parts.append(
            Text(f"It cannot start until others have left its CPUs: {', '.join(values['waits_for'])}", TROUBLE)
        )
    if values["asked"]:
        parts += _section("What it requested, as the kubelet sent it", values["asked"]["read_as"])
    if values["why"]:
        parts += _section(WHY.get(row["state"], "Why it runs there"), values["why"])
    if values.get("devices"):
        quotas = [_quota(each["quota"]) for each in values["devices"] if each.get("quota")]
        parts += _section("How it got its cards", [*map(_cards, values["devices"]), *quotas])
    parts += render_choices(values.get("choices", ()))  # missing in answers of earlier versions
    parts += _history(values["events"])
    if values["earlier"]:
        lines = list(_earlier(values["earlier"]))
        parts += _section("Other containers with this name, newest first", lines)
    return Group(*parts)


def _now(row: Values) -> Iterator[Text]:
    """Render the current state in a few lines."""
    if "qos" not in row:
        if row["state"] == "refused":
            yield Text("It was refused, and never had an ID", style=TROUBLE)
        else:
            yield Text("It no longer exists")
            yield Text(f"ID {row['id'] or 'unknown'}", overflow="fold")
        return
    attempt = f", attempt {row['attempt']}" if row["attempt"] else ""
    yield Text(f"ID {row['id'] or 'not known yet'}", overflow="fold")
    yield Text(f"{row['state'].capitalize()}, {row['qos']}{attempt}")
    if row["state"] == "exited":
        return
    yield Text(f"Size in force: CPU {words.cpu(row)}, memory limit {words.memory(row)}")
    yield Text(_place(row), style="" if row["in_place"] else TROUBLE)
    if row["error"]:
        yield Text(f"WRONG: {count(row['failures'], 'update')} failed, the last: {row['error']}", style=TROUBLE)


def _place(row: Values) -> str:
    if not row["placed"]:
        at = cpus_text(row["applied_cpus"]) if row["applied_cpus"] else "unknown CPUs"
        return f"It is not placed; it runs on {at}"
    pool = f", pool {row['pool']}" if row["pool"] else ""
    if row["exclusive_cpus"] == row["cpus"]:
        place = f"Runs on {cpus_text(row['cpus'])}, exclusive"
    elif row["exclusive_cpus"]:
        place = f"Runs on {cpus_text(row['cpus'])}, of which {row['exclusive_cpus']} are exclusive"
    else:
        place = f"Runs on {cpus_text(row['cpus'])}, shared"
    memory = f", memory of NUMA node{'s' if len(row['mems']) > 1 else ''} {row['mems']}" if row["mems"] else ""
    return f"{place}{memory}{pool}{_elsewhere(row)}"


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
    shares = [f"{each['resource']} {_ids(each)} ({each['source']})" for each in kind["allocated"]]
    known = [*shares] or [kind["evidence"]]
    cards = f"card{'s' if len(kind['cards']) > 1 else ''} {', '.join(kind['cards']) or 'unknown'}"
    where = f" at {kind['pci_addresses'].replace(',', ', ')}" if kind["pci_addresses"] else ""
    nodes = kind["nodes"].replace(",", ", ") or "no device node of a card"
    numa = f" → NUMA node {kind['numa_nodes'].replace(';', ', ')}" if kind["numa_nodes"] else ""
    return f"{kind['class']}: {' and '.join(known)} → {cards}{where} → {nodes}{numa}"


def _quota(quota: Values) -> str:
    """What it may use of its vGPU, and what holds it to that."""
    sizes = [f"{quota['memory_mib']} MiB"] if quota["memory_mib"] else []
    sizes += [f"{quota['cores_percent']} % of the cores"] if quota["cores_percent"] else []
    by = f", enforced by {quota['enforced_by']}" if quota["enforced_by"] else ""
    without = f"; not in effect: {quota['not_enforced']}" if quota["not_enforced"] else ""
    return f"quota of {quota['profile']}: {' and '.join(sizes)}{by}{without}"


def _elsewhere(row: Values) -> str:
    if row["in_place"]:
        return ""
    if not row["applied_cpus"]:
        return "; it is unknown where it runs now"
    memory = f" and memory of {row['applied_mems']}" if row["applied_mems"] != row["mems"] else ""
    return f"; it is still on {cpus_text(row['applied_cpus'])}{memory}"


def _section(title: str, lines: list[str]) -> list[RenderableType]:
    table = _indented(1)
    for line in lines:
        table.add_row("", line)
    return [Text(), Text(title, style=HEADING), table]


def _indented(columns: int) -> Table:
    """Return a table without lines, indented by two blanks."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(width=0)
    for _ in range(columns):
        table.add_column(overflow="fold")
    return table


def _history(events: list[Values]) -> Iterator[RenderableType]:
    if not events:
        yield from _section("What happened", ["its history is no longer available"])
    for day, events_of_day in groupby(events, key=lambda each: each["time"][:10]):
        yield Text()
        yield Text(f"What happened on {day} (UTC)", style=HEADING)
        table = _indented(3)
        for each in events_of_day:
            at = Text(each["time"][11:23], style=QUIET)
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
