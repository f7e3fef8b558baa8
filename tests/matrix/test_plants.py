"""Defects that were mended are found again by the matrix when somebody brings them back."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from criproxy.errors import CriproxyError
from criproxy.node.configuration import in_place
from tests.matrix import cases, play, playing_tries, scene, trying
from tests.matrix.plants import PLANTS, TRY_PLANTS, Plant

LIMIT_S = 60.0
FOUND = [
    *(pytest.param(plant, plant.cases(cases.ALL), play.play, id=name) for name, plant in PLANTS.items()),
    *(pytest.param(plant, plant.cases(trying.ALL), playing_tries.play, id=name) for name, plant in TRY_PLANTS.items()),
]


@pytest.mark.parametrize(("plant", "tried", "play"), FOUND)
async def test_a_planted_defect_is_caught(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Plant,
    tried: Sequence[Any],
    play: Callable[[Any, Path], Awaitable[list[str]]],
) -> None:
    """A case with the features in question says what is wrong."""
    monkeypatch.setattr(scene, "REST_S", 0.5)  # what does not come to rest is what is looked for
    monkeypatch.setattr(scene, "BARRIER_S", 2.0)  # so is an update that a start waits for in vain
    monkeypatch.setattr(in_place, "RETRY_S", 0.01)
    plant.bring_back(monkeypatch)
    problems: list[str] = []
    async with asyncio.timeout(LIMIT_S):
        for case in tried:
            (place := tmp_path / case.id).mkdir()
            try:
                problems += await play(case, place)
            except (AssertionError, CriproxyError) as error:
                problems.append(str(error))
            if any(re.search(plant.sentence, problem) for problem in problems):
                return
    pytest.fail(f"not caught: {problems}")
