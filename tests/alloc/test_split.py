"""Pools get what they ask for, and a share of the rest by their use (V29)."""

from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from criproxy.alloc.split import split_by_use


def test_vector_29(shared_dir: Path) -> None:
    """Each of its cases, exactly; there the first pool is the reserved one, which never changes."""
    document = yaml.safe_load((shared_dir / "scenarios/crirm-vectors.yaml").read_text())
    (vector,) = (vector for vector in document["vectors"] if vector["id"] == "V29")
    for case in vector["cases"]:
        reserved, *expected = case["out"]
        requests = case.get("requests", [0, 0, 0, 0])[1:]
        weights = (case["weights"] or [0, 0, 0, 0])[1:]

        assert reserved == 2
        assert split_by_use(case["free"], requests, weights) == expected, case


@given(st.integers(0, 100), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 1000)), min_size=1))
def test_nothing_is_lost(free: int, pools: list[tuple[int, int]]) -> None:
    """Everybody gets at least what they ask for, and everything is given away."""
    requests, weights = [request for request, _ in pools], [weight for _, weight in pools]
    split = split_by_use(free, requests, weights)

    assert sum(split) == free + sum(requests)
    assert all(got >= request for got, request in zip(split, requests, strict=True))
