"""Draws all gains of a report, beside it.

python -m lab.benefit.programs.plots REPORT
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

_DOT, _LINE = "#1f5fa8", "#9db8d6"


def gains(report: dict[str, Any], path: Path) -> None:
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
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "criproxy", "svg.fonttype": "none", "font.size": 9})
    source = Path(sys.argv[1])
    gains(json.loads(source.read_text()), source.with_name(f"{source.stem}-gains.svg"))
