"""Plays the matrix without pytest, and prints what is wrong: ``python -m tests.matrix [CASE …]``.

Exit status: 0 all of them hold, 1 some do not.
"""

import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from tests.matrix.cases import ALL, Case
from tests.matrix.play import play


def main() -> int:
    """Play those that are named, or all."""
    wanted = set(sys.argv[1:])
    failed = 0
    logging.disable()
    for case in ALL:
        if not wanted or case.id in wanted:
            failed += _fails(case)
    print(f"{failed} failed")
    return 1 if failed else 0


def _fails(case: Case) -> bool:
    """Play one, and print what is wrong with it; whether anything is."""
    with tempfile.TemporaryDirectory(prefix="criproxy-matrix-") as directory:
        try:
            problems = asyncio.run(play(case, Path(directory)))
        except Exception as error:  # noqa: BLE001 (the others are played all the same)
            problems = [repr(error)]
    if problems:
        print(f"FAILS {case.words}", *problems, sep="\n    ")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
