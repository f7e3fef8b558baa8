"""The fuzzer finds nothing in the data plane as it is, and finds what is planted in it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.fuzz import targets
from lab.fuzz.plants import PLANTS

ROOT = Path(__file__).resolve().parents[3]
EXECUTIONS = 250
"""Inputs that are tried; `make fuzz` tries them for minutes, others each time."""
SEEDS = sorted((ROOT / "lab/fuzz/corpus").iterdir())
PLANT_EXECUTIONS = "2000"
"""Within so many inputs each planted mistake is found."""


def fuzz(folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Run the fuzzer in a process of its own, its files in *folder*; its exit status and its report."""
    pytest.importorskip("atheris")  # which has wheels for x86_64 alone
    done = subprocess.run(
        [sys.executable, "-m", "lab.fuzz", "--json", str(folder / "fuzz.json"), *options], cwd=ROOT, check=False
    )
    return done.returncode, json.loads((folder / "fuzz.json").read_text())


def test_nothing_is_found(tmp_path: Path) -> None:
    """Arbitrary conversations, bytes and messages bring no crash, stall, leak or difference."""
    seed = 7
    status, report = fuzz(tmp_path, "--executions", str(EXECUTIONS), "--seed", str(seed))

    assert report["findings"] == []
    assert status == 0
    assert report["seed"] == seed
    assert set(report["targets"]) == set(targets.NAMES)
    assert report["executions"] == sum(report["targets"].values()) == EXECUTIONS
    assert report["leaks"]["rounds"] >= 2


@pytest.mark.parametrize("plant", PLANTS)
def test_planted_mistake_is_found(plant: str, tmp_path: Path) -> None:
    """Each mistake is found soon, and its input shows it again when it is replayed."""
    limit = "50" if plant == "never-freed" else PLANT_EXECUTIONS
    status, report = fuzz(tmp_path, "--plant", plant, "--seed", "1", "--max-findings", "1", "--executions", limit)

    assert status == 1
    found = report["findings"][0]
    if plant == "never-freed":
        assert "a leak" in found["what"]
        return
    replay = [sys.executable, "-m", "lab.fuzz", "--replay", found["file"], "--plant", plant]
    assert subprocess.run(replay, cwd=ROOT, check=False, capture_output=True).returncode == 1
    targets.run(Path(found["file"]).read_bytes())  # without the mistake nothing goes wrong


@pytest.mark.parametrize("file", SEEDS, ids=lambda file: file.name)
def test_kept_inputs_pass(file: Path) -> None:
    """Inputs that found something once, and a small set that reaches most of the data plane."""
    targets.run(file.read_bytes())


def test_corpus_is_small() -> None:
    """What is kept in git stays below 200 kB."""
    assert 0 < sum(file.stat().st_size for file in SEEDS) <= 200_000
