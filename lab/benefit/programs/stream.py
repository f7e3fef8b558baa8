"""Memory bandwidth with numpy, as the STREAM benchmark measures it (its operation "triad"). Amount: GB.

python -m lab.benefit.programs.stream SECONDS
"""

import sys

import numpy as np

from lab.benefit.programs.harness import work

_VALUES = 8 << 20
"""64 MB in each of the three arrays: more than a level 2 cache."""


def main(seconds: float) -> None:
    """Compute a = b + s * c over and over."""
    first, second, third = np.zeros(_VALUES), np.ones(_VALUES), np.full(_VALUES, 2.0)

    def step() -> float:
        np.multiply(third, 3.0, out=first)
        np.add(first, second, out=first)
        return float(5 * first.nbytes / 1e9)  # read, write, read, read, write

    work(step, seconds, version=np.__version__, threads=1)


if __name__ == "__main__":
    main(float(sys.argv[1]))
