"""Every feature that touches a create meets every other one, under every policy, on the embedded runtime."""

import asyncio
from itertools import combinations
from pathlib import Path

import pytest

from tests.matrix.cases import ALL, APPLY, ASKS, DEVICES, FRONTS, NAMESPACES, PLUGINS, PRIVILEGED, Case, cases
from tests.matrix.moments import MOMENTS, POLICIES
from tests.matrix.play import play

LIMIT_S = 60.0


@pytest.mark.parametrize("case", ALL, ids=[case.id for case in ALL])
async def test_where_features_meet(tmp_path: Path, case: Case) -> None:
    """The containers come up or get a sentence of ours, the invariants hold, nothing fails, and --check tells."""
    async with asyncio.timeout(LIMIT_S):
        problems = await play(case, tmp_path)
    assert not problems, "\n".join([case.words, *problems])


@pytest.mark.parametrize("policy", POLICIES)
def test_every_two_features_meet_under_every_policy(policy: str) -> None:
    """Whatever can happen meets whatever else can, and all that pods and the policy file can say."""
    met = {frozenset(pair) for case in cases(policy) for pair in combinations((*case.moments, *case.said), 2)}
    happens = [word for word in MOMENTS if word != f"reload to {policy}"]
    assert {frozenset(pair) for pair in combinations(happens, 2)} <= met
    for said in (DEVICES, PRIVILEGED, NAMESPACES, APPLY, FRONTS, PLUGINS):
        assert {frozenset((one, other)) for one in happens for other in said} <= met
    for said in (DEVICES, PRIVILEGED, NAMESPACES, APPLY, FRONTS):
        assert {frozenset((one, other)) for one in PLUGINS for other in said} <= met


@pytest.mark.parametrize("policy", POLICIES)
def test_everything_meets_both_fronts(policy: str) -> None:
    """Annotations, too."""
    met = {frozenset((case.front, word)) for case in cases(policy) for word in (*case.moments, *case.keys, *case.said)}
    happens = [word for word in MOMENTS if word != f"reload to {policy}"]
    words = [*happens, *ASKS, *DEVICES, *PRIVILEGED, *NAMESPACES, *APPLY, *PLUGINS]
    assert {frozenset((front, word)) for front in FRONTS for word in words} <= met


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("word", ["allow", "deny"])
async def test_privileged_containers(tmp_path: Path, word: str, front: str) -> None:
    """Where it is not seen that they are, they are as others: no pair of features says so."""
    said = ("devices enforce", f"privileged: {word}", "in default", "apply: new", front, "no plugin")
    assert not await play(Case(0, "static", (), (), *said), tmp_path)


def test_the_matrix_stays_small() -> None:
    """At most 200 cases, so that all of them are run each time."""
    assert len(ALL) <= 200
