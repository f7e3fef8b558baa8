"""``criproxy status``: shows the state of the node once or repeatedly, or checks it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import click

from criproxy.cli.client import NodeClient, places_options
from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render import words
from criproxy.cli.render.class_words import service_line
from criproxy.cli.render.console import NOTE, QUIET, TROUBLE, UNLIMITED, print_lines, table
from criproxy.cli.render.topology_words import count
from criproxy.cli.repeated_output import Ask, Values, show_answer, watch_options
from criproxy.model.cpuset import cpus_text
from criproxy.model.grant import PRESERVED
from criproxy.model.text.amounts import format_bytes, format_seconds
from criproxy.model.text.bounded import bounded, in_turn
from criproxy.model.text.sources import NODE_POLICY
from criproxy.model.workload import SHORT_ID

SETTLE_S, PAUSE_S = 5.0, 0.25
"""How long `--check` waits for updates in flight, and the pause between two queries."""


@click.command(short_help="Show the containers, their CPUs, and what is wrong.")
@click.option("-n", "--namespace", default="", help="Show only containers in this namespace.")
@click.option("--pod", default="", help="Show only containers of the pod with this name.")
@click.option("--exclusive", is_flag=True, help="Show only containers with exclusive CPUs.")
@click.option(
    "--refused", is_flag=True, help="Show all refused containers that criproxy remembers, not only the newest."
)
@click.option("--check", is_flag=True, help="Print only what is wrong; exit with status 1 if anything is.")
@watch_options
@places_options
def command(  # noqa: PLR0913 (one for each option)
    *,
    namespace: str,
    pod: str,
    exclusive: bool,
    refused: bool,
    check: bool,
    watch: bool,
    interval_s: float,
    output: str,
    **places: Any,  # noqa: ANN401 (click has checked them)
) -> None:
    """Show the containers of this node, what they requested, their CPUs, free CPUs, and what is wrong.

    The command asks the daemon. If no daemon answers, it shows the state that the daemon left on disk, and a notice.
    The CPUs are those that were granted; if a container does not run on them yet, its line shows this.

    --check prints one message for each problem, and exits with status 1 if there is one: a CPU that is exclusive to two
    containers, a container that is not where it should be, a failed update, a refused configuration, and more
    (docs/check.md).
    """
    if check and watch:
        raise click.UsageError("--check and --watch cannot be combined")
    asked = NodeClient(**places)
    if check:
        raise SystemExit(_check(asked, output))
    ask = partial(asked.ask, "status", {"namespace": namespace, "pod": pod, "exclusive": exclusive})
    named = [f"of pods named {pod}"] * bool(pod) + [f"in namespace {namespace}"] * bool(namespace)
    chosen = " ".join([*named, *["with exclusive CPUs"] * exclusive])
    show_answer(ask, output, partial(render, chosen=chosen, every_refusal=refused), watch=watch, interval_s=interval_s)


_NOTED = frozenset({"try", "withheld", "kubelet-reserved", "policy-none", "nri"})
"""Notices that ``--check`` prints although nothing is wrong: they change what the answer means, or explain refusals."""


def _check(places: NodeClient, output: str) -> int:
    """Print the problems; return the exit status."""
    values = settled(lambda: places.ask("status", {"check": True}))
    wrong = values["problems"] + values["under_way"]
    notices = (notice for notice in values["notices"] if notice["kind"] in _NOTED and not notice["wrong"])
    notes = [f"Note: {notice['text']}" for notice in notices]
    if output == "json":
        click.echo(json.dumps(values))
    else:
        totals = values["totals"]
        counts = f"{count(totals['containers'], 'container')}, {totals['exclusive']} with exclusive CPUs"
        for each in [*(wrong or [f"All is well: {counts}, all where they should be."]), *notes]:
            print_lines(bounded(each))
    return 1 if wrong else 0


def settled(ask: Ask) -> Values:
    """Return the answer of *ask* when no update is in flight, or after a timeout."""
    deadline_s = time.monotonic() + SETTLE_S
    while True:
        values = ask()
        if values["problems"] or not values["under_way"] or time.monotonic() > deadline_s:
            return values
        time.sleep(PAUSE_S)


SILENT_S = 30.0
"""The kubelet asks its runtime something every ten seconds at the latest: after so long it does not ask here."""
MOST_NODES = 16
"""So many NUMA nodes with their free CPUs fit into a line that people read; the table below has all."""
WIDE = 120
"""From this width on, each container has one line with its id and memory; on narrower screens if that fits."""
MOST_FAILURES = 5
_LIMITED = "criproxy keeps only a limited number of reasons per pod and per node"
_GAP = 2
"""The number of blanks between two columns of a table."""
MOST_NARROW = 24
"""The width of a column if there is little room."""
_SETS = (
    ("shared", "shared pool, for all containers without exclusive CPUs"),
    ("reserved", "reserved, never exclusive to a new container"),
    ("isolated", "isolated by the kernel"),
    ("watched", "used by containers that criproxy only watches"),
    ("offline", "offline"),
)


@words.renders
def render(
    values: Values, width: int, height: int | None = None, *, chosen: str = "", every_refusal: bool = False
) -> Iterator[rich.RenderableType]:
    """Render an answer to `status` for *width* columns and, if it matters, *height* lines.

    Containers that do not fit are left out; those with problems last.

    Args:
        values: the answer.
        width: the number of columns.
        height: the number of lines; None: unlimited.
        chosen: the selected containers, such as ``in namespace shop``; empty: all.
        every_refusal: show all containers that cannot be created, not only the newest.
    """
    notices = [*words.notices_of(values), *_refusals(values, every=every_refusal), *_failures(values)]
    policy = f", policy {values['policy']}" if values["policy"] else ""
    head: list[rich.RenderableType] = [
        words.title_of(values, policy),
        *front_of(values),
        *notices,
        rich.Text(),
        _numa(values),
        *_sets(values),
        *_kept(values),
        rich.Text(),
    ]
    rows = values["containers"]
    whole = _whole(rows, values["cpus"]["shared"], full=width == UNLIMITED)
    is_wide = width >= WIDE or _width(rows, whole) <= width
    room = 0 if height is None else height - _height(head, width) - 4
    kept = rows if height is None else _most_important(rows, room if is_wide else room // 2)
    yield from (*head, _totals(values))
    if kept:
        yield from [_table(kept, whole)] if is_wide else _narrow(kept, values["cpus"]["shared"])
    if chosen and not rows:
        yield rich.Text(f"No container {chosen} is known.", style=NOTE)
    if missing := len(rows) - len(kept) + values["omitted"]:
        yield rich.Text(f"… and {count(missing, 'more container')}", style=QUIET)


def _refusals(values: Values, *, every: bool) -> Iterator[rich.Text]:
    """Render the containers that cannot be created, as far as there is room: first the newest of each namespace."""
    refusals = values["refusals"]
    most = len(refusals) if every else MOST_FAILURES
    in_turns = in_turn(refusals, lambda refusal: refusal["container"].partition("/")[0])
    for refusal in refusals if every else in_turns[:most]:
        times = f"{refusal['times']} times, last " if refusal["times"] > 1 else ""
        yield rich.Text(f"REFUSED {times}{words.ago(refusal['time'])} ago: {refusal['text']}", style=TROUBLE)
    shown_later = len(refusals[most:])
    omitted = values.get("refusals_omitted", 0)  # missing in answers of earlier versions
    if missing := shown_later + omitted:
        how = f"--refused shows {'all' if not omitted else f'{shown_later} of them'}" if shown_later else _LIMITED
        yield rich.Text(f"REFUSED: {count(missing, 'more container')}; {how}", style=TROUBLE)


def _numa(values: Values) -> rich.Table:
    found = table("NUMA NODE", "CPUS", "EXCLUSIVE", "SHARED", "FREE", "MEMORY", right=("MEMORY",))
    for node in values["numa_nodes"]:
        cpus = [node[key] or "-" for key in ("cpus", "exclusive_cpus", "shared_cpus")]
        free = "?" if node["free_cpus"] is None else node["free_cpus"] or "-"
        memory = format_bytes(node["memory_bytes"]) if node["memory_bytes"] else "-"
        found.add_row(str(node["id"]), *cpus, free, memory)
    return found


def _sets(values: Values) -> Iterator[rich.Text]:
    for name, text in _SETS:
        pooled = name == "shared" and not values.get("shared_by_all")  # each pool or balloon has a part of these CPUs
        meaning = "not exclusive" if pooled else text
        if cpus := values["cpus"][name]:
            yield rich.Text(f"{cpus_text(cpus)}: {meaning}", style=QUIET)


def _kept(values: Values) -> Iterator[rich.Text]:
    """Render the pods with kept CPUs; nothing if the answer lacks them."""
    for each in values.get("kept", ()):
        who = f"{each['pod']} ({', '.join(each['containers'])} ended)"
        yield rich.Text(f"{cpus_text(each['cpus'])}: kept for {who}", style=QUIET)


def _totals(values: Values) -> rich.Text:
    totals = values["totals"]
    parts = [f"{totals['exclusive']} with exclusive CPUs", f"{totals['shared']} sharing"]
    for name, meaning in (("unplaced", "not placed"), ("exited", "exited")):
        if totals[name]:
            parts.append(f"{totals[name]} {meaning}")
    text = rich.Text(f"{count(totals['pods'], 'pod')}, {count(totals['containers'], 'container')}: {', '.join(parts)}")
    for name, meaning in (("not_in_place", "not in place"), ("unknown", "with unknown outcome")):
        if totals[name]:
            text.append(f", {totals[name]} {meaning}", style=TROUBLE)
    return text


def _failures(values: Values) -> Iterator[rich.Text]:
    """Render the failing updates, as far as there is room."""
    failed = [row for row in values["containers"] if row["error"]]
    for row in failed[:MOST_FAILURES]:
        text = f"{words.title(row)}: {count(row['failures'], 'update')} failed, the last: {row['error']}"
        yield rich.Text(f"WRONG: {text}", style=TROUBLE)
    if (more := len(failed) - MOST_FAILURES) > 0:
        yield rich.Text(f"WRONG: updates of {count(more, 'more container')} failed", style=TROUBLE)


def _most_important(rows: Sequence[Values], room: int) -> Sequence[Values]:
    """Select *room* rows: those with problems first, then those with exclusive CPUs; keep their order."""
    room = max(0, room)
    if len(rows) <= room:
        return rows
    chosen = sorted(rows, key=lambda row: (not _has_problem(row), not row["exclusive_cpus"]))[:room]
    return sorted(chosen, key=words.title)


def _height(parts: Sequence[rich.RenderableType], width: int) -> int:
    measure = rich.Console(width=width, markup=False, emoji=False)
    return sum(len(measure.render_lines(part, pad=False)) for part in parts)


def _has_problem(row: Values) -> bool:
    return bool(not row["in_place"] or row["error"] or row["state"] == "unknown")


Columns = dict[str, Callable[[Values], str]]
"""The cells of the columns of a table, by their names."""


def _whole(rows: Sequence[Values], shared: str, *, full: bool) -> Columns:
    """Return the columns of a table with one line for each container."""
    columns: Columns = {
        "CONTAINER": words.short_title,
        "ID": lambda row: row["id"][:SHORT_ID],
        "QOS": lambda row: words.QOS[row["qos"]],
        "CPU REQUEST": words.cpu,
        "MEMORY": words.memory,
        "CPUS": lambda row: _cpus(row, shared, full=full),
        "POOL": lambda row: words.short(row["pool"]),
        "MEMS": lambda row: row["mems"] or row["applied_mems"] or "-",
        "STATE": _state,
    }
    return _without(columns, *([] if any(row["pool"] for row in rows) else ["POOL"]))


def _without(columns: Columns, *names: str) -> Columns:
    return {name: cell for name, cell in columns.items() if name not in names}


def _width(rows: Sequence[Values], columns: Columns) -> int:
    """Return the width of a table of *rows*."""
    widths = (max([len(name), *(rich.cell_len(cell(row)) for row in rows)]) for name, cell in columns.items())
    return sum(widths) + _GAP * (len(columns) - 1)


def _narrow(rows: Sequence[Values], shared: str) -> Iterator[rich.RenderableType]:
    """Render one line for each pod, and one for each of its containers."""
    columns = _without(_whole(rows, shared, full=False), "ID", "MEMORY", "POOL")
    columns["CONTAINER"] = lambda row: f"  {words.short(row['container'])}"
    widths = [max(len(name), *(len(cell(row)) for row in rows)) for name, cell in columns.items()]
    widths = [min(width, MOST_NARROW) for width in widths[:-1]]
    yield _table([], columns, widths)
    for pod, members in groupby(rows, key=lambda row: (row["namespace"], row["pod"])):
        yield rich.Text("/".join(map(words.short, filter(None, pod))) or "(no pod)", overflow="fold")
        yield _table(list(members), columns, widths, header=False)


def _table(rows: Sequence[Values], columns: Columns, widths: Sequence[int] = (), *, header: bool = True) -> rich.Table:
    found = table(*columns, right=("MEMORY",))
    found.show_header = header
    for column, width in zip(found.columns, widths, strict=False):
        column.width = width
    for row in rows:
        style = TROUBLE if _has_problem(row) else QUIET if row["state"] == "exited" else ""
        found.add_row(*(cell(row) for cell in columns.values()), style=style)
    return found


def _cpus(row: Values, shared: str, *, full: bool) -> str:
    if row["state"] == "exited":
        return "-"
    if not row["placed"]:
        return f"{row['applied_cpus']} not placed" if row["applied_cpus"] else "not placed"
    if owned := row["exclusive_cpus"]:
        return f"{row['cpus']} exclusive" if owned == row["cpus"] else f"{row['cpus']}, exclusive {owned}"
    if row["cpus"] == shared and row["pool"] != PRESERVED and not full:
        return "shared"
    return f"{row['cpus']} {'preserved' if row['pool'] == PRESERVED else 'shared'}"


def _state(row: Values) -> str:
    """Return the state of a container, and where it runs if that is not where it should."""
    known = "starting" if row["starting"] else row["state"]
    parts = ["outcome unknown" if row["state"] == "unknown" else known]
    if not row["in_place"]:
        place = (
            cpus_text(row["applied_cpus"]) if row["applied_cpus"] != row["cpus"] else f"memory {row['applied_mems']}"
        )
        parts.append(f"still on {place}" if row["applied_cpus"] else "place unknown")
    if row["failures"]:
        parts.append(f"{count(row['failures'], 'update')} failed")
    return ", ".join(parts)


def front_of(values: Values) -> Iterator[rich.Text]:
    """What the answer says of these; nothing of what a daemon of an earlier version does not say."""
    if plugin := values.get("plugin"):
        yield _plugin(plugin, values["kubelet"])
    elif kubelet := values.get("kubelet"):
        yield _kubelet(kubelet, values["started"])
    if (runtime := values.get("runtime")) and runtime["name"]:
        yield rich.Text(f"Runtime: {runtime['name']} {runtime['version']} on {runtime['socket'] or 'its socket'}")
    if (configuration := values.get("configuration")) and configuration["hash"]:
        file, since = configuration["file"], words.ago(configuration["loaded"])
        name = f"NodePolicy {file.removeprefix(NODE_POLICY)}" if file.startswith(NODE_POLICY) else file
        text = f"Policy{'' if name != file else ' file'}: {name}, hash {configuration['hash']}, loaded {since} ago"
        yield rich.Text(text + _instead_of_file(configuration))
    if agent := values.get("agent"):
        state = "; see the notices" if agent["problems"] else ""
        talks = f"has talked to this daemon for {words.ago(agent['since'])}{state}"
        yield rich.Text(f"Agent: version {agent['version']}, {talks}")
    if controls := values.get("controls"):
        yield service_line(controls)
    if counts := values.get("cpu_counts"):
        of = "" if counts["capacity"] is None else f" of {counts['capacity']}"
        yield rich.Text(f"Exclusive CPUs: {counts['exclusive']}{of}; free: {_free(values)}")


def _instead_of_file(configuration: Values) -> str:
    if configuration.get("kept") and configuration["file"].startswith(NODE_POLICY):
        return ""
    if configuration.get("kept"):
        return "; KEPT after a try, in place of the configured policy file"
    if not (trial := configuration.get("try")):
        return ""
    back = f"the former configuration comes back in {format_seconds(trial['left_s'])}"
    return f"; BEING TRIED: {back} unless this one is kept"


def _kubelet(kubelet: Values, started: str) -> rich.Text:
    age_s = kubelet["last_call_s"]
    if age_s is None:
        text = f"Kubelet: no call since criproxy started {words.ago(started)} ago"
        is_late = words.passed_s(started) > SILENT_S
        return rich.Text(f"{text}: it is not connected to criproxy", TROUBLE) if is_late else rich.Text(text)
    calls = _calls(kubelet) or "(it has connected, but not called)"
    if age_s > SILENT_S:
        text = f"Kubelet: no call for {_age(age_s)}: it is not running, or is not connected to criproxy"
        return rich.Text(f"{text} {calls}", TROUBLE)
    return rich.Text(f"Kubelet: connected to criproxy, last call {_age(age_s)} ago {calls}")


def _plugin(plugin: Values, events: Values) -> rich.Text:
    if plugin["problem"]:
        return rich.Text(f"NRI: not connected to the runtime: {plugin['problem']}", TROUBLE)
    said = f"last event {_age(age_s)} ago {_calls(events)}" if (age_s := events["last_call_s"]) is not None else ""
    return rich.Text(f"NRI: plugin of the runtime on {plugin['socket']}, {said or 'no event yet'}")


def _calls(kubelet: Values) -> str:
    classes = kubelet["classes"].items()
    parts = [f"{word} {_age(each['last_call_s'])} ago" for word, each in classes if each["last_call_s"] is not None]
    return f"({', '.join(parts)})" if parts else ""


def _age(age_s: float) -> str:
    return f"{age_s:.1f} s" if age_s < 10 else format_seconds(age_s)


def _free(values: Values) -> str:
    if values["cpu_counts"]["free"] is None:
        return "unknown"
    nodes = [node for node in values["numa_nodes"] if node["cpus"]]
    if len(nodes) == 1 or len(nodes) > MOST_NODES:
        return str(values["cpu_counts"]["free"])
    stay = sum(node["free"] for node in nodes) - values["cpu_counts"]["free"]
    kept = f"; {stay} of these must stay shared" if stay else ""
    return (", ".join(f"{node['free']} on NUMA node {node['id']}" for node in nodes) or "0") + kept
