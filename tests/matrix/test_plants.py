"""Defects that were mended are found again by the matrix when somebody brings them back."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.matrix import scene
from tests.matrix.cases import ALL, Case
from tests.matrix.plants import PLANTS, Plant
from tests.matrix.play import play

LIMIT_S = 60.0


FEW = 8
"""So many cases are tried for a plant at the most."""


def cases_of(plant: Plant) -> list[Case]:
    """The first cases with all of its words."""
    said = {case: {case.policy, *case.moments, *case.keys, *case.said} for case in ALL}
    return [case for case in ALL if said[case].issuperset(plant.words)][:FEW]


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
async def test_a_planted_defect_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    """A case with the features in question says what is wrong."""
    monkeypatch.setattr(scene, "REST_S", 0.5)  # what does not come to rest is what is looked for
    monkeypatch.setattr(scene, "BARRIER_S", 2.0)  # so is an update that a start waits for in vain
    plant.bring_back(monkeypatch)
    problems: list[str] = []
    async with asyncio.timeout(LIMIT_S):
        for case in cases_of(plant):
            (place := tmp_path / case.id).mkdir()
            try:
                problems += await play(case, place)
            except AssertionError as error:
                problems.append(str(error))
            if any(re.search(plant.sentence, problem) for problem in problems):
                return
    pytest.fail(f"not caught: {problems}")
