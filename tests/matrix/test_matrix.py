"""Every feature that touches a create meets every other one, under every policy, on the embedded runtime."""

import asyncio
from pathlib import Path

import pytest

from tests.matrix.cases import ALL, Case
from tests.matrix.play import play

LIMIT_S = 30.0


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
async def test_where_features_meet(tmp_path: Path, case: Case) -> None:
    """The containers come up or get a sentence of ours, the invariants hold, nothing fails, and --check tells."""
    async with asyncio.timeout(LIMIT_S):
        problems = await play(case, tmp_path)
    assert not problems, "\n".join([case.words, *problems])
