"""Figures in pages: blocks that are written from the reports, so that no figure is typed by hand.

In a page, a block stands between two comments, and is replaced as a whole:

    <!-- benefit: NAME REPORT -->
    …
    <!-- end -->

NAME is one of `BLOCKS`, functions that make Markdown of one or two reports, and REPORT the name of a file in
docs/benefit. One figure in a sentence stands between ``<!-- = WORDS -->`` and ``<!-- / -->``; WORDS begin with a
report, and `figure` says what follows.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lab.benefit.equipment import Equipment
from lab.provenance import ROOT

Report = Mapping[str, Any]
FOLDER = ROOT / "docs/benefit"
PAGES = (ROOT / "README.md", ROOT / "docs/compare.md", ROOT / "docs/benefit.md")
BLOCK = re.compile(r"(<!-- benefit: (?P<words>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
FIGURE = re.compile(r"(<!-- = (?P<words>[^>]+?) -->).*?(<!-- / -->)")


def reports() -> dict[str, Report]:
    """All reports, by name."""
    paths = sorted(FOLDER.glob("*.json"))
    return {path.stem: {"name": path.stem, **json.loads(path.read_text())} for path in paths}


def render(page: str, known: Mapping[str, Report]) -> str:
    """The text of a page with the figures of the *known* reports.

    Raises:
        LookupError: the page asks for a figure or block that a report does not have.
    """
    page = BLOCK.sub(lambda found: f"{found[1]}{_block(known, found['words'].split())}{found[3]}", page)
    return FIGURE.sub(lambda found: f"{found[1]}{figure(known, found['words'].split())}{found[3]}", page)


def write(known: Mapping[str, Report]) -> None:
    """Write the figures into all pages."""
    for page in PAGES:
        page.write_text(render(page.read_text(), known))


def _block(known: Mapping[str, Report], words: list[str]) -> str:
    name, *names = words
    return f"\n{BLOCKS[name](*(known[each] for each in names))}\n\n"


def figure(known: Mapping[str, Report], words: list[str]) -> str:
    """One figure: ``REPORT CASE MANAGER KEY [low|median|high]``, or REPORT and keys from the top of the report."""
    name, *rest = words
    found: Any = known[name]
    if "/" in rest[0]:
        case, manager, *rest = rest
        found = of_case(found, case, manager)
    for key in rest:
        found = found[key]
    if isinstance(found, Mapping):
        found = found["median"]
    return f"{found:.0f} %" if any(word.endswith("_percent") for word in rest) else f"{found:g}"


def draw(equipment: Equipment, path: Path) -> None:
    """Draw the picture of the report at *path* beside it."""
    equipment.run("-m", "lab.benefit.programs.plots", str(path)).check_returncode()


def of_case(report: Report, case: str, manager: str) -> Mapping[str, Any]:
    """The figures of a case under a manager; LookupError if the report has none."""
    rows = {(each["name"], row["name"]): row for each in report["cases"] for row in each["managers"]}
    if (case, manager) not in rows:
        raise LookupError(f"the report has no case {case} with the manager {manager}")
    return dict(rows[case, manager])


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "|" + "|".join(f" {cell} " if cell and cell != "---" else cell or " " for cell in line) + "|" for line in lines
    )


def between(figure: Mapping[str, float] | None, digits: str = "g", unit: str = "") -> str:
    """A median with its interval."""
    if figure is None:
        return ""
    low, middle, high = (format(figure[key], digits) for key in ("low", "median", "high"))
    return f"{middle}{unit} ({low} to {high})"


def usable(report: Report) -> str:
    """Whether the report counts; nothing if it does."""
    if report["usable"]:
        return ""
    return "**These figures do not count: the machine was too noisy.** " + "; ".join(report["complaints"]) + ".\n\n"


def gains(report: Report) -> str:
    """All cases: figures, what was gained, what neighbours lost."""
    rows = []
    for case in report["cases"]:
        titles = [case["workload"], case["neighbours"]]
        for row in case["managers"]:
            changed = [row["shorter_percent"], row["neighbours_lose_percent"]] if not titles[0] else [None, None]
            figures = [f"{between(row['value'])} {case['unit']}", *(between(each, ".0f", " %") for each in changed)]
            rows.append([*titles, row["name"], *figures])
            titles = ["", ""]
    head = ["Workload", "Beside", "Manager", "Figure", "Reduction", "Work lost by neighbours"]
    return usable(report) + table(head, rows)


def why(report: Report) -> str:
    """What explains the figures: medians of the rounds."""
    rows = [
        [
            case["name"],
            row["name"],
            " or ".join(row["cpus"]),
            f"{row['threads']:g}" if "threads" in row else "",
            *(f"{row[key]:g} s" for key in ("cpu_s", "waited_s", "throttled_s")),
        ]
        for case in report["cases"]
        for row in case["managers"]
    ]
    return table(["Case", "Manager", "CPUs", "Threads", "CPU time", "Waited for a CPU", "Throttled by a quota"], rows)


def percentiles(report: Report) -> str:
    """The latencies of services."""
    rows = [
        [case["name"], row["name"], *(f"{row[key]:g} ms" for key in ("p50_ms", "p99_ms", "p999_ms"))]
        for case in report["cases"]
        for row in case["managers"]
        if "p99_ms" in row
    ]
    return table(["Case", "Manager", "p50", "p99", "p99.9"], rows)


def agreement(report: Report, second: Report) -> str:
    """Two runs beside each other."""
    rows = []
    for case in report["cases"]:
        for row in case["managers"][1:]:
            one, other = row["shorter_percent"], of_case(second, case["name"], row["name"])["shorter_percent"]
            both = [between(each, ".0f", " %") for each in (one, other)]
            rows.append([case["name"], row["name"], *both, "yes" if overlap(one, other) else "**no**"])
    return table(["Case", "Manager", "First run", "Second run", "Agree"], rows)


def overlap(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether two intervals have a value in common."""
    return one["low"] <= other["high"] and other["low"] <= one["high"]


def simulated(report: Report) -> str:
    """Machines with several NUMA nodes."""
    rows = [
        [
            machine if number == 0 else "",
            name,
            f"{100 * row['cpu_on_one_node']:.0f} %",
            f"{100 * row['memory_on_one_node']:.0f} %",
            f"{row['distance']:.1f}",
            f"{100 * row['fragmentation']:.0f} %",
            f"{100 * row['at_cards']:.0f} %",
        ]
        for machine, policies in report["simulated"].items()
        for number, (name, row) in enumerate(policies.items())
    ]
    head = ["Machine", "Policy", "CPUs on one node", "Memory on one node", "Distance to memory", "Fragmentation"]
    return table([*head, "Next to their cards"], rows)


def machine(report: Report) -> str:
    """What was measured on, and how."""
    plan = report["plan"]
    measured = f"{plan['rounds']} rounds of {plan['seconds']:g} s in {plan['took_s'] / 60:.0f} min, seed {plan['seed']}"
    described = {"made": report["made"], "measured": measured, **report["machine"], **report["versions"]}
    return table(["", ""], [[name.replace("_", " "), str(value)] for name, value in described.items()])


def headline(report: Report) -> str:
    """What is gained, beside what the kubelet gains and what it costs; nothing if the report does not count."""
    if not report["usable"]:
        return ""
    machines = {name: found for name, found in report["simulated"].items() if not name.endswith("-made")}

    def latency(case: str, manager: str) -> str:
        return f"{of_case(report, case, manager)['value']['median']:.2g} ms"

    def lost(case: str, manager: str) -> str:
        percent = of_case(report, case, manager)["neighbours_lose_percent"]["median"]
        return f"the neighbours do {percent:.0f} % less work"

    def share(key: str) -> list[str]:
        return [_range([policies[name][key] for policies in machines.values()]) for name in _COMPARED]

    burstable = [latency("redis-burstable/web", name) for name in ("none", "kubelet-static", "balloons")]
    guaranteed = [latency("redis/web", name) for name in _COMPARED]
    _, kubelets, ours = share("fragmentation")
    scattered = f"free CPU time is more scattered (fragmentation {ours}; kubelet: {kubelets})"
    rows = [
        ["p99 latency of redis, Burstable pod", *burstable, lost("redis-burstable/web", "balloons")],
        ["the same, Guaranteed pod with a whole CPU", *guaranteed, lost("redis/web", "topology-aware")],
        ["*simulated*: a container's CPUs on one NUMA node", *share("cpu_on_one_node"), scattered],
        ["*simulated*: containers next to their cards", *share("at_cards"), "the same"],
    ]
    return table(["", "no manager", "kubelet's static CPU manager", "criproxy", "Cost"], rows)


_COMPARED = ("none", "kubelet-static", "topology-aware")


def _range(shares: list[float]) -> str:
    """The smallest and the largest of some shares, in percent."""
    low, high = (f"{100 * each:.0f}" for each in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def pictures(report: Report) -> str:
    """All gains, and where the raw data is."""
    name = report["name"]
    return f"![what was gained in each case](benefit/{name}-gains.svg)\n\n[All raw data](benefit/{name}.json)"


BLOCKS: Mapping[str, Callable[..., str]] = {
    each.__name__: each for each in (headline, pictures, gains, why, percentiles, agreement, simulated, machine)
}
