"""Intervals of medians by the bootstrap: reads ``{name: [values]}`` as JSON, prints ``{name: [low, high]}``.

python -m lab.benefit.programs.intervals < values.json
"""

import json
import sys

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
_RESAMPLES = 10_000


def interval(values: list[float]) -> list[float]:
    """Between which values the median lies, at that confidence."""
    if len(set(values)) < 2:
        return [values[0], values[0]]
    found = stats.bootstrap(
        (np.array(values),),
        np.median,
        n_resamples=_RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    return [float(found.low), float(found.high)]


if __name__ == "__main__":
    json.dump({name: interval(values) for name, values in json.load(sys.stdin).items()}, sys.stdout)
