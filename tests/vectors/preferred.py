"""Which ids are preferred: ``preferred.yaml``."""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from criproxy.deviceplugin.nvidia.preference import PairScores, UnknownGpu, pair_score, preferred
from criproxy.devices.classes.cards import Distance
from criproxy.devices.classes.offers import Offered, card_of
from criproxy.devices.plugin.preference import NotEnoughOffered, Spread
from tests.vectors.cards import config_of_case
from tests.vectors.resources import differs, differs_error, offers_of

Case = Mapping[str, Any]


def judge(case: Case, whole: Case) -> str | None:
    """What differs from ``expect``; None: nothing does."""
    try:
        found = _aligned(case, whole) if case["kind"] == "aligned" else _greedy(case, whole)
    except (NotEnoughOffered, UnknownGpu) as error:
        return differs_error(error, case["expect"])
    if "error" in case["expect"]:
        return f"found {found!r}, expected the error {case['expect']['error']!r}"
    return _differs(found, case["expect"])


def _differs(found: tuple[str, ...], expected: Mapping[str, Any]) -> str | None:
    if "any_of" in expected:
        cards = sorted(map(int, found))
        return None if cards in expected["any_of"] else f"found {cards!r}, expected one of {expected['any_of']!r}"
    counts = dict(Counter(map(card_of, found)))
    if len(found) != expected["length"] or len(set(found)) != len(found):
        return f"found {found!r}, expected {expected['length']} ids"
    if counts not in expected["counts_any_of"]:
        return f"found {counts!r}, expected one of {expected['counts_any_of']!r}"
    return differs(sorted(found), sorted(expected.get("ids", found)))


def _aligned(case: Case, whole: Case) -> tuple[str, ...]:
    matrix = whole["topologies"][case["topology"]]
    offered = {str(place): Offered(id=str(place), index=str(place)) for place in range(len(matrix))}
    return preferred(offered, *_request(case), scores=_scores(matrix))


def _scores(matrix: list[list[str]]) -> PairScores:
    found = {}
    for one, other in combinations(range(len(matrix)), 2):
        level, _, links = matrix[one][other].partition("+NV")
        distance = None if level == "INTERNAL" else Distance[level]
        found[frozenset({str(one), str(other)})] = pair_score(distance, int(links or 0))
    return found


def _greedy(case: Case, whole: Case) -> tuple[str, ...]:
    plugin = config_of_case(case).flags.plugin
    spread: Spread = "packed" if plugin.shared_devices_allocation_policy == "packed" else "distributed"
    return preferred(offers_of(case, whole)[case["resource"]], *_request(case), spread=spread)


def _request(case: Case) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    available, required = (tuple(map(str, case[name])) for name in ("available", "required"))
    return available, required, case["size"]
