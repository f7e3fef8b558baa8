"""Plays the matrix without pytest, and prints what is wrong: ``python -m tests.matrix [CASE …]``.

Exit status: 0 all is as `known` says, 1 something else fails, or holds though it is listed.
"""

import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from tests.matrix.cases import ALL, Case
from tests.matrix.known import known
from tests.matrix.play import play


def main() -> int:
    """Play those that are named, or all."""
    wanted = set(sys.argv[1:])
    surprises = 0
    logging.disable()
    for case in ALL:
        if not wanted or case.id in wanted:
            surprises += _told(case)
    print(f"{surprises} surprises")
    return 1 if surprises else 0


def _told(case: Case) -> bool:
    """Play one, and print what is wrong with it; whether that is a surprise."""
    with tempfile.TemporaryDirectory(prefix="criproxy-matrix-") as directory:
        try:
            problems = asyncio.run(play(case, Path(directory)))
        except Exception as error:  # noqa: BLE001 (the others are played all the same)
            problems = [repr(error)]
    why = known(case.id)
    if problems:
        print(f"{'known' if why else 'FAILS'} {case.words}", *problems, sep="\n    ")
    elif why:
        print(f"HOLDS {case.words}\n    though it is listed: {why}")
    return bool(problems) != bool(why)


if __name__ == "__main__":
    sys.exit(main())
