"""Figures in pages: blocks that are written from the report, so that no figure is typed by hand.

In a page, a block stands between two comments, and is replaced as a whole:

    <!-- benefit: NAME ARGUMENT… -->
    …
    <!-- end -->

NAME is a function of `BLOCKS`. Elsewhere in a sentence, ``<!-- = PATH -->FIGURE<!-- / -->`` holds one figure, where
PATH leads to it in the report, such as ``redis/web topology-aware shorter_percent``.
"""

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.rigs.benefit.equipment import ROOT, Equipment

PAGES = (ROOT / "README.md", ROOT / "docs/benefit.md")
_BLOCK = re.compile(r"(<!-- benefit: (?P<words>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FIGURE = re.compile(r"(<!-- = (?P<words>[^>]+) -->).*?(<!-- / -->)")
Report = Mapping[str, Any]


def render(page: str, report: Report) -> str:
    """The text of a page with the figures of *report*.

    Raises:
        LookupError: the page asks for a figure or block that the report does not have.
    """
    page = _BLOCK.sub(lambda found: f"{found[1]}\n{_block(report, found['words'].split())}\n\n{found[3]}", page)
    return _FIGURE.sub(lambda found: f"{found[1]}{figure(report, found['words'].split())}{found[3]}", page)


def write(report: Report) -> None:
    """Write the figures into all pages that exist."""
    for page in PAGES:
        if page.exists():
            page.write_text(render(page.read_text(), report))


def _block(report: Report, words: list[str]) -> str:
    name, *arguments = words
    return BLOCKS[name](report, *arguments)


def _case(report: Report, name: str) -> Mapping[str, Any]:
    return _named(report["cases"], name)


def _named(things: list[dict[str, Any]], name: str) -> Mapping[str, Any]:
    for thing in things:
        if thing["name"] == name:
            return thing
    raise LookupError(f"the report has no {name}")


def figure(report: Report, words: list[str]) -> str:
    """One figure: CASE MANAGER KEY, or a path of keys from the top of the report."""
    if len(words) == 3 and "/" in words[0]:
        case, manager, key = words
        found: Any = _named(_case(report, case)["managers"], manager)[key]
    else:
        found = report
        for word in words:
            found = found[word]
    if isinstance(found, Mapping):
        found = found["median"]
    unit = " %" if words[-1].endswith("_percent") else ""
    return f"{found:.0f}{unit}" if unit else f"{found:g}" if isinstance(found, float) else str(found)


def _gains(report: Report) -> str:
    """All cases in one table."""
    lines = [
        "| Workload | Beside | Manager | Figure | Shorter than without by | Neighbours do less by |",
        "|---|---|---|---|---|---|",
    ]
    for case in report["cases"]:
        for number, row in enumerate(case["managers"]):
            first = (case["workload"], case["neighbours"]) if number == 0 else ("", "")
            value = row["value"]
            shown = f"{case['metric']} {value['median']:g} {case['unit']} ({value['low']:g} to {value['high']:g})"
            compared = ("", "") if number == 0 else (_percent(row, "shorter"), _percent(row, "neighbours_lose"))
            lines.append(f"| {' | '.join((*first, row['title'], shown, *compared))} |".replace("|  |", "| |"))
    return "\n".join(lines)


def _percent(row: Mapping[str, Any], what: str) -> str:
    found = row[f"{what}_percent"]
    if found is None:
        return ""
    return f"{found['median']:.0f} % ({found['low']:.0f} to {found['high']:.0f})"


def _why(report: Report) -> str:
    """What explains the figures."""
    lines = [
        "| Case | Manager | CPUs | Threads | CPU time | Waited for a CPU | Stopped by the quota |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {case['name']} | {row['name']} | {' or '.join(row['cpus'])} | {row.get('threads', 1):g} "
        f"| {row['cpu_s']:g} s | {row['waited_s']:g} s | {row['throttled_s']:g} s |"
        for case in report["cases"]
        for row in case["managers"]
    ]
    return "\n".join(lines)


def _cost(report: Report) -> str:
    """What criproxy takes."""
    cost = report["cost"]
    lines = [
        f"| | {' | '.join(cost['pods_at_once_s'])} |",
        f"|---{'|---' * len(cost['pods_at_once_s'])}|",
        _row(f"{cost['pods_at_once']} pods at once, s", cost["pods_at_once_s"], cost["pods_at_once_s"]),
        _row("added to a create, ms", cost["create_added_ms"], cost["pods_at_once_s"]),
        _row("CPU of the process behind the socket per pod, ms", cost["cpu_per_pod_ms"], cost["pods_at_once_s"]),
        _row("its memory, MiB", cost["memory_mib"], cost["pods_at_once_s"]),
    ]
    return "\n".join(lines)


def _row(title: str, values: Mapping[str, float], names: Mapping[str, Any]) -> str:
    return f"| {title} | {' | '.join(f'{values[name]:g}' if name in values else '–' for name in names)} |"


def _simulated(report: Report) -> str:
    """Machines with several nodes, simulated."""
    lines = ["| Machine | Policy | CPUs on one node | Memory on one node | Distance |", "|---|---|---|---|---|"]
    for machine, policies in report["simulated"].items():
        lines += [
            f"| {machine if number == 0 else ''} | {name} | {100 * row['cpu_on_one_node']:.0f} % "
            f"| {100 * row['memory_on_one_node']:.0f} % | {row['distance']:.1f} |"
            for number, (name, row) in enumerate(policies.items())
        ]
    return "\n".join(lines)


def _machine(report: Report) -> str:
    """What was measured on."""
    keys = {**report["machine"], **report["versions"]}
    lines = ["| | |", "|---|---|", f"| made | {report['made']} |"]
    return "\n".join([*lines, *(f"| {name.replace('_', ' ')} | {value} |" for name, value in keys.items())])


BLOCKS: Mapping[str, Callable[..., str]] = {
    "gains": _gains,
    "why": _why,
    "cost": _cost,
    "simulated": _simulated,
    "machine": _machine,
}


def draw(equipment: Equipment, path: Path) -> None:
    """Draw the pictures of the report at *path* beside it."""
    command = [str(equipment.python), "-m", "tests.rigs.benefit.programs.plots", str(path), str(path.parent)]
    environment = {**os.environ, **equipment.environment}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
