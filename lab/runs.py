"""What rigs have in common that draw what they do from a seed, and write what they found as JSON."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from secrets import randbits


def parser(rig: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of ``python -m lab.RIG``, with the options for the seed and for the file of the results."""
    made = argparse.ArgumentParser(prog=f"python -m lab.{rig}", description=description.partition("\n")[0])
    made.add_argument(
        "--seed", type=int, default=randbits(31), help="what everything follows from (default: a new one, printed)"
    )
    made.add_argument("--json", type=Path, default=Path(f"build/{rig}.json"), help="where the results go")
    return made


def write(path: Path, report: Mapping[str, object]) -> None:
    """Write the results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
