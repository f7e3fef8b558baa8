"""The blocks of figures in pages: each function makes Markdown of one or two reports. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

Report = Mapping[str, Any]


def of_case(report: Report, case: str, manager: str) -> Mapping[str, Any]:
    """The figures of a case under a manager; LookupError if the report has none."""
    rows = {(each["name"], row["name"]): row for each in report["cases"] for row in each["managers"]}
    if (case, manager) not in rows:
        raise LookupError(f"the report has no case {case} with the manager {manager}")
    found: Mapping[str, Any] = rows[case, manager]
    return found


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
        for number, row in enumerate(case["managers"]):
            first = number == 0
            rows.append(
                [
                    case["workload"] if first else "",
                    case["neighbours"] if first else "",
                    row["name"],
                    f"{between(row['value'])} {case['unit']}",
                    "" if first else between(row["shorter_percent"], ".0f", " %"),
                    "" if first else between(row["neighbours_lose_percent"], ".0f", " %"),
                ]
            )
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


def mechanisms(report: Report) -> str:
    """What each mechanism does on its own."""
    rows = [
        [
            case["mechanism"] if number == 0 else "",
            f"{case['workload']}, beside {case['neighbours']}" if number == 0 else "",
            row["name"],
            between(row["shorter_percent"], ".0f", " %"),
        ]
        for case in report["cases"]
        for number, row in enumerate(case["managers"][1:])
    ]
    return usable(report) + table(["Mechanism", "Case", "Manager", "Reduction"], rows)


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


def cost(report: Report) -> str:
    """What criproxy takes."""
    found = report["cost"]
    names = list(found["pods_at_once_s"])
    keys = {
        "pods_at_once_s": f"{found['pods_at_once']} pods that start at once, s",
        "create_added_ms": "added to a CreateContainer, ms",
        "cpu_per_pod_ms": "CPU time per pod of the process that serves the socket, ms",
        "memory_mib": "its memory, MiB",
    }
    rows = [
        [title, *(f"{found[key][name]:g}" if name in found[key] else "" for name in names)]
        for key, title in keys.items()
    ]
    return table(["", *names], rows)


def simulated(report: Report) -> str:
    """Machines with several NUMA nodes."""
    rows = [
        [
            machine if number == 0 else "",
            name,
            f"{100 * row['cpu_on_one_node']:.0f} %",
            f"{100 * row['memory_on_one_node']:.0f} %",
            f"{row['distance']:.1f}",
        ]
        for machine, policies in report["simulated"].items()
        for number, (name, row) in enumerate(policies.items())
    ]
    return table(["Machine", "Policy", "CPUs on one node", "Memory on one node", "Distance to memory"], rows)


def machine(report: Report) -> str:
    """What was measured on, and how."""
    plan = report["plan"]
    measured = f"{plan['rounds']} rounds of {plan['seconds']:g} s in {plan['took_s'] / 60:.0f} min, seed {plan['seed']}"
    described = {"made": report["made"], "measured": measured, **report["machine"], **report["versions"]}
    return table(["", ""], [[name.replace("_", " "), str(value)] for name, value in described.items()])


def headline(report: Report) -> str:
    """Three sentences for the first screen; nothing if the report does not count."""
    if not report["usable"]:
        return ""
    training = of_case(report, "cnn-pytorch/busy", "topology-aware")["shorter_percent"]
    service = [of_case(report, "redis/web", name)["value"]["median"] for name in ("none", "topology-aware")]
    other = [of_case(report, "redis-burstable/web", name)["value"]["median"] for name in ("kubelet-static", "balloons")]
    cpus = report["machine"]["cpus"]
    fell = f"{other[0]:.2g} ms to {other[1]:.2g} ms"
    how = "[measured; how to repeat it](docs/benefit.md)"
    lines = [
        f"With criproxy, on a node with {cpus} CPUs and noisy neighbours ({how}):",
        "",
        f"* training a CNN with PyTorch's default settings takes {training['median']:.0f} % less time;",
        f"* the p99 latency of redis falls from {service[0]:.2g} ms to {service[1]:.2g} ms;",
        f"* in a Burstable pod, which the kubelet's own manager does not pin, this latency falls from {fell}.",
    ]
    return "\n".join(lines)


def pictures(report: Report) -> str:
    """All gains, and where the raw data is; the pictures of single cases lie beside it."""
    name = report["name"]
    return f"![what was gained in each case](benefit/{name}-gains.svg)\n\n[All raw data](benefit/{name}.json)"


BLOCKS: Mapping[str, Callable[..., str]] = {
    each.__name__: each
    for each in (headline, pictures, gains, why, percentiles, mechanisms, agreement, cost, simulated, machine)
}
