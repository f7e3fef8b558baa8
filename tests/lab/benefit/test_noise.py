"""A noisy machine is told from a quiet one."""

import pytest

from lab.benefit.rounds import complaints

QUIET = [1.0, 1.01, 1.02, 0.99, 1.0]
NOISY = [1.0, 2.0, 3.0, 1.0, 4.0]


@pytest.mark.parametrize(
    ("calibrations_s", "direct", "neighbours", "stolen", "words"),
    [
        pytest.param(QUIET, {"a/b": QUIET}, {}, [0.0, 0.01], [], id="quiet"),
        pytest.param(NOISY, {"a/b": QUIET}, {}, [0.0], ["the same work on the empty machine"], id="calibration"),
        pytest.param(QUIET, {"a/b": NOISY, "c/d": QUIET}, {}, [0.0], ["a/b: figures without a manager"], id="direct"),
        pytest.param(QUIET, {"a/b": QUIET}, {"c/d": NOISY}, [0.0], ["c/d: what the neighbours did"], id="neighbours"),
        pytest.param(QUIET, {"a/b": QUIET}, {}, [0.1, 0.1, 0.0], ["the hypervisor took 10.0%"], id="stolen"),
        pytest.param(NOISY, {"a/b": NOISY}, {}, [0.5], ["the same", "hypervisor", "a/b"], id="all"),
    ],
)
def test_complaints_name_what_was_noisy(
    calibrations_s: list[float],
    direct: dict[str, list[float]],
    neighbours: dict[str, list[float]],
    stolen: list[float],
    words: list[str],
) -> None:
    """One sentence for each reason, with the limit."""
    found = complaints([(1.0, each) for each in calibrations_s], direct, neighbours, stolen)
    assert len(found) == len(words)
    assert all(word in " ".join(found) for word in words)
    assert all("limit" in sentence for sentence in found)
