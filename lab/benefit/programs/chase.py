"""Random reads from more memory than caches hold: how far away the memory is. Amount: millions of reads.

python -m lab.benefit.programs.chase SECONDS
"""

import sys

import numpy as np

from lab.benefit.programs.harness import work

_VALUES = 64 << 20
"""512 MB."""
_READS = 1 << 20


def main(seconds: float) -> None:
    """Read values at random places, over and over."""
    values = np.arange(_VALUES, dtype=np.int64)
    places = np.random.default_rng(1).integers(0, _VALUES, _READS)
    found = np.empty(_READS, dtype=np.int64)

    def step() -> float:
        np.take(values, places, out=found)
        return _READS / 1e6

    work(step, seconds, version=np.__version__, threads=1)


if __name__ == "__main__":
    main(float(sys.argv[1]))
