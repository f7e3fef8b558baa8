"""Figures in pages: blocks that are written from the reports, so that no figure is typed by hand.

In a page, a block stands between two comments, and is replaced as a whole:

    <!-- benefit: NAME REPORT -->
    …
    <!-- end -->

NAME is a function of `lab.benefit.blocks`, and REPORT the name of a file in docs/benefit. One figure in a
sentence stands between ``<!-- = WORDS -->`` and ``<!-- / -->``; WORDS begin with a report, and `figure` says what
follows. Without the report, figures and the block of README are empty, and the other blocks say so.
"""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.benefit.blocks import BLOCKS, Report, of_case
from lab.benefit.equipment import ROOT, Equipment

FOLDER = ROOT / "docs/benefit"
PAGES = (ROOT / "README.md", ROOT / "docs/benefit.md")
BLOCK = re.compile(r"(<!-- benefit: (?P<words>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
MISSING = "\nThe repository has no report of these figures yet.\n\n"
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
    if any(each not in known for each in names):
        return "" if name == "headline" else MISSING
    return f"\n{BLOCKS[name](*(known[each] for each in names))}\n\n"


def figure(known: Mapping[str, Report], words: list[str]) -> str:
    """One figure: ``REPORT CASE MANAGER KEY [low|median|high]``, or REPORT and keys from the top of the report."""
    name, *rest = words
    if name not in known:
        return ""
    found: Any = known[name]
    if rest[0] != "cost" and "/" in rest[0]:
        case, manager, *rest = rest
        found = of_case(found, case, manager)
    for key in rest:
        found = found[key]
    if isinstance(found, Mapping):
        found = found["median"]
    return f"{found:.0f} %" if any(word.endswith("_percent") for word in rest) else f"{found:g}"


def draw(equipment: Equipment, path: Path) -> None:
    """Draw the pictures of the report at *path* beside it."""
    command = [str(equipment.python), "-m", "lab.benefit.programs.plots", str(path), str(path.parent)]
    environment = {**os.environ, **equipment.environment}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
