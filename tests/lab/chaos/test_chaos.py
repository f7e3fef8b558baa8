"""Criproxy is killed and nothing is wrong afterwards; what is planted in it is found."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.chaos.plugged import unavailable
from lab.containerd.containerd import available
from tests.conftest import ROOT

CAUGHT = {
    "barrier-skipped": ("two on one CPU", "--phase", "start held"),
    "undo-on-reset": ("has no place in the store", "--calm", "1"),
    "place-from-stamp": ("was granted 0 and runs on 0,1|two on one CPU", "--phase", "start held", "--calm", "0"),
}
"""Planted fault → what the checker says of it (a pattern), and options that let it come up soon."""

CGROUPS = Path("/sys/fs/cgroup/cpuset")

pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def _possible(shared_dir: Path) -> None:
    """Containerd, and the machine for the embedded runtime."""
    if reason := available():
        pytest.skip(reason)


def chaos(folder: Path, *options: str) -> tuple[int, dict[str, Any], list[str]]:
    """Exit status, report and violations of a run."""
    report = folder / "chaos.json"
    command = [sys.executable, "-m", "lab.chaos", "--json", str(report), *options]
    status, told = subprocess.run(command, cwd=ROOT, check=False).returncode, json.loads(report.read_text())
    return status, told, [violation["what"] for half in told["halves"] for violation in half["violations"]]


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a run puts its folders; sockets need a short path."""
    with tempfile.TemporaryDirectory(prefix="cc") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def traces(folder: Path) -> set[Path]:
    """The folders of a run, and the cgroups that have their names."""
    folders = set(folder.iterdir())
    return folders | {group for one in folders if (group := CGROUPS / one.name).is_dir()}


@pytest.mark.slow
def test_nothing_is_wrong_after_kills(tmp_path: Path, scratch: Path) -> None:
    """Killed in every phase on both runtimes: no CPU has two owners, no place is lost or leaked, the store is right."""
    kills, seed = 12, 20261123

    options = ("--kills", str(kills), "--seed", str(seed), "--rest", "60")  # on a busy machine
    status, report, found = chaos(tmp_path, *options)

    assert (found, [half["missed"] for half in report["halves"]]) == ([], [[], []])
    assert (status, report["seed"], report["kills"], report["violations"]) == (0, seed, kills, 0)
    assert [half["kills"] for half in report["halves"]] == [kills - kills // 2, kills // 2]
    assert sum(report["phases"].values()) == kills
    assert min(report["phases"].values()) >= kills // 6 - 1 > 0
    for half in report["halves"]:
        assert half["checker"]["looks"] > 10 * half["kills"]
        assert half["checker"]["looks_with_owners"] > 0
        assert half["checker"]["unjudged"] == 0
    assert traces(scratch) == set()


@pytest.mark.slow
def test_nothing_is_wrong_after_kills_of_a_plugin(tmp_path: Path, scratch: Path) -> None:
    """The same where the runtime asks criproxy over NRI; whoever starts without a place is told and gets one."""
    if reason := unavailable():
        pytest.skip(reason)
    status, report, found = chaos(tmp_path, "--kills", "5", "--seed", "7", "--rest", "60", "--runtime", "plugin")

    (half,) = report["halves"]
    assert (status, found, half["missed"], half["kills"]) == (0, [], [], 5)
    assert half["checker"]["looks_with_owners"] > 0
    assert half["checker"]["unplaced"] > 0
    assert traces(scratch) == set()


@pytest.mark.chance
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("plant", "sentence"),
    [("barrier-skipped", "two on one CPU"), ("unplaced-untold", "not listed")],
)
def test_a_faulty_plugin_is_caught(plant: str, sentence: str, tmp_path: Path, scratch: Path) -> None:
    """Owners and sharers start together; nobody says who ran without a place."""
    options = ("--kills", "60", "--seed", "3", "--stop", "--runtime", "plugin", "--plant", plant)
    _, _, found = chaos(tmp_path, *options, "--phase", "release", "--phase", "sent")

    assert any(sentence in each for each in found)


@pytest.mark.chance
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", CAUGHT)
def test_a_planted_fault_is_caught(plant: str, tmp_path: Path) -> None:
    """Within some kills (8, or 39 where a cut has to meet a create), with a sentence that says what is wrong."""
    sentence, *options = CAUGHT[plant]
    limits = ("--kills", "160", "--seed", "5", "--stop", "--rest", "8", "--runtime", "containerd")

    status, _, found = chaos(tmp_path, "--plant", plant, *limits, *options)

    assert status == 1
    assert any(re.search(sentence, what) for what in found), found
    assert not any(what.startswith("criproxy failed") for what in found)  # which is not what was planted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        ("moves-believed", "--check is silent: lost place"),
        ("check-complains", "--check complains, and nothing is wrong: "),
    ],
    ids=["silent", "false-alarm"],
)
def test_a_mistake_of_check_is_caught(plant: str, sentence: str, tmp_path: Path) -> None:
    """At the first rests, what the kernel says and what ``status --check`` says are compared: no luck is needed."""
    options = ("--kills", "3", "--seed", "3", "--rest", "2", "--runtime", "embedded", "--calm", "1", "--lost", "0")

    status, _, found = chaos(tmp_path, "--plant", plant, "--stop", *options)

    assert status == 1
    assert any(what.startswith(sentence) for what in found), found
