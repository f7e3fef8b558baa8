"""Draws a report: one picture per case, and one of all gains.

python -m lab.benefit.programs.plots REPORT FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

_DOT, _LINE = "#1f5fa8", "#9db8d6"


def _points(report: dict[str, Any], case: str, manager: str) -> list[float]:
    samples = report["raw"]["samples"]
    return [each["value"] for each in samples if (each["case"], each["manager"]) == (case, manager)]


def case(report: dict[str, Any], found: dict[str, Any], prefix: Path) -> None:
    """Each round as a dot, the interval of the median as a bar."""
    rows = found["managers"][::-1]
    figure, axes = plt.subplots(figsize=(7, 0.6 * len(rows) + 1.2))
    for at, row in enumerate(rows):
        value = row["value"]
        axes.plot([value["low"], value["high"]], [at, at], color=_LINE, linewidth=9, solid_capstyle="butt")
        points = _points(report, found["name"], row["name"])
        axes.plot(points, [at] * len(points), "o", color=_DOT, markersize=4, alpha=0.7)
        axes.plot([value["median"]] * 2, [at - 0.25, at + 0.25], color="black", linewidth=1.5)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{found['metric']}, {found['unit']} (less is better)")
    axes.set_title(f"{found['workload']}, beside {found['neighbours']}", fontsize=10)
    _save(figure, Path(f"{prefix}-{found['name'].replace('/', '-')}.svg"))


def gains(report: dict[str, Any], prefix: Path) -> None:
    """By how much each manager shortens each case."""
    rows = [(case, row) for case in report["cases"] for row in case["managers"][1:]][::-1]
    figure, axes = plt.subplots(figsize=(8, 0.35 * len(rows) + 1.2))
    for at, (_, row) in enumerate(rows):
        shorter = row["shorter_percent"]
        axes.barh(at, shorter["median"], color=_LINE)
        axes.plot([shorter["low"], shorter["high"]], [at, at], color=_DOT, linewidth=2)
    axes.set_yticks(range(len(rows)), [f"{case['name']}, {row['name']}" for case, row in rows])
    axes.axvline(0, color="black", linewidth=1)
    axes.set_xlabel("shorter than without a manager by, % (line: 95 % interval of the median)")
    _save(figure, Path(f"{prefix}-gains.svg"))


def _save(figure: "plt.Figure", path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(report_path: Path, folder: Path) -> None:
    """Draw everything."""
    mpl.rcParams.update({"svg.hashsalt": "criproxy", "svg.fonttype": "none", "font.size": 9})
    report, prefix = json.loads(report_path.read_text()), folder / report_path.stem
    for found in report["cases"]:
        case(report, found, prefix)
    gains(report, prefix)


if __name__ == "__main__":
    mpl.use("svg")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
