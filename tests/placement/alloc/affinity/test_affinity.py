"""Affinities lead to the pools that the published cases say, and mistakes in them are told."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from criproxy.placement.alloc.affinity.affinity import Affinity, parse_affinities, pool_scores, weight_of
from criproxy.placement.alloc.affinity.expressions import Expression

POOLS = {"root": 0, "S0": 1, "N0": 2, "N2": 3, "S1": 4, "N1": 5, "N3": 6}
PATHS = ((0,), (1, 0), (2, 1, 0), (3, 1, 0), (4, 0), (5, 4, 0), (6, 4, 0))


def test_scores_lead_to_the_published_pools(shared_dir: Path) -> None:
    """Vector V24: the highest score, and of those that are alike the deepest."""
    document = yaml.safe_load((shared_dir / "scenarios" / "crirm-vectors.yaml").read_text())
    cases = next(vector for vector in document["vectors"] if vector["id"] == "V24")["cases"]
    judged = [case for case in cases if case["in"]]
    assert judged
    for case in judged:
        scores = pool_scores(PATHS, {POOLS[name]: weight for name, weight in case["in"].items()})
        best = max(range(len(PATHS)), key=lambda index: (scores[index], len(PATHS[index]), -index))
        assert best == POOLS[case["out"]], case


def test_a_score_is_exact() -> None:
    """Nine quarters of quarters are nine quarters of quarters."""
    assert pool_scores(PATHS, {POOLS["N0"]: 9}) == [9 * 36, 9 * 48, 9 * 64, 0, 0, 0, 0]
    assert pool_scores(PATHS, {POOLS["root"]: -1}) == [-64, -48, -36, -36, -48, -36, -36]


def named(name: str) -> Expression:
    """Matches one container name."""
    return Expression("name", "Equals", (name,))


def test_names_are_a_mutual_affinity() -> None:
    """Who is named gets the same affinity back, and others none."""
    document = {"a": ["b", "c"]}
    assert parse_affinities(document, "a", anti=False) == [Affinity(named("b")), Affinity(named("c"))]
    assert parse_affinities(document, "b", anti=False) == [Affinity(named("a"))]
    assert parse_affinities(document, "b", anti=True) == [Affinity(named("a"), -1)]
    assert parse_affinities(document, "d", anti=False) == []


def test_full_affinities_have_weights_and_scopes() -> None:
    """They are the container's own, and anti-affinity turns the weight round."""
    match = {"key": "labels/app", "operator": "In", "values": ["db"]}
    document = {"a": [{"match": match, "scope": {"operator": "AlwaysTrue"}, "weight": 10}, {"match": match}]}
    wide, near = parse_affinities(document, "a", anti=True)
    assert (wide.weight, near.weight) == (-10, -1)
    assert parse_affinities(document, "b", anti=False) == []
    database = {"labels/app": "db"}.get
    assert weight_of([wide, near], database, same_pod=False) == -10
    assert weight_of([wide, near], database, same_pod=True) == -11
    assert weight_of([wide, near], {"labels/app": "web"}.get, same_pod=True) == 0


MATCH: dict[str, Any] = {"key": "name", "operator": "Exists"}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (["a"], "it must be a map of container names"),
        ({"a": "b"}, "a: must be a list"),
        ({"a": [{"match": MATCH, "weight": 1001}]}, "a: the weight is a whole number from -1000 to 1000, not 1001"),
        ({"a": [{"match": MATCH, "weight": "1"}]}, "not '1'"),
        ({"a": [{"match": MATCH, "wieght": 1}]}, "no 'wieght'"),
        ({"a": [{"weight": 1}]}, "a: an affinity needs a match"),
        ({"b": [{"match": {"key": "name", "operator": "Like"}}]}, "b: unknown operator 'Like'"),
    ],
)
def test_what_is_no_affinity_is_told(document: object, says: str) -> None:
    """Whichever container of the pod it is about: the annotation is the pod's."""
    with pytest.raises(ValueError, match=says):
        parse_affinities(document, "a", anti=False)
