"""Tries of configurations meet what can happen to a node, under every policy, and end in every way."""

import asyncio
from itertools import combinations
from pathlib import Path

import pytest

from criproxy.node.configuration import in_place
from tests.matrix.moments import POLICIES
from tests.matrix.playing_tries import play
from tests.matrix.trying import ALL, ENDS, MEETS, TryCase

LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be removed from a full disk is tried again at once."""
    monkeypatch.setattr(in_place, "RETRY_S", 0.01)


@pytest.mark.parametrize("case", ALL, ids=[case.id for case in ALL])
async def test_what_a_try_meets(tmp_path: Path, case: TryCase) -> None:
    """Everybody is where they were before it, or where what was kept has put them, and nothing fails."""
    async with asyncio.timeout(LIMIT_S):
        problems = await play(case, tmp_path)
    assert not problems, "\n".join([case.words, *problems])


def test_every_two_meet() -> None:
    """Policies, what is tried, what happens and how it ends."""
    slots = [{(name, getattr(case, name)) for case in ALL} for name in ("policy", "tried", "apply", "meets", "end")]
    met = {
        pair
        for case in ALL
        for pair in combinations(
            [(name, getattr(case, name)) for name in ("policy", "tried", "apply", "meets", "end")], 2
        )
    }
    assert {(one, two) for first, second in combinations(slots, 2) for one in first for two in second} == met
    assert [len(slot) for slot in slots] == [len(POLICIES), len(POLICIES), 2, len(MEETS), len(ENDS)]
    assert len(ALL) <= 50
