"""Judge every vector in a directory: ``python -m tests.vectors --dir ../shared/nvidia-vectors``."""

import argparse
from pathlib import Path

from tests.vectors.deliberate import DELIBERATE, MAX_DIFFERENCES
from tests.vectors.runner import verdicts


def main() -> int:
    """Print a line per case; 1 if any of them fails, 2 if there is none."""
    parser = argparse.ArgumentParser(prog="python -m tests.vectors", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="directory with the files of vectors")
    arguments = parser.parse_args()
    if not arguments.dir.is_dir():
        parser.error(f"{arguments.dir} is not a directory")
    count = failed = 0
    for verdict in verdicts(arguments.dir):
        count += 1
        failed += verdict.wrong is not None
        print(verdict.line)
    print(f"{count - failed} of {count} cases pass, {len(DELIBERATE)} differences on purpose are listed")
    if len(DELIBERATE) > MAX_DIFFERENCES:
        print(f"FAIL more than {MAX_DIFFERENCES} differences on purpose")
        return 1
    return 1 if failed else 0 if count else 2


if __name__ == "__main__":
    raise SystemExit(main())
