"""A quick run takes every sample on real containers, and each manager places them as it should."""

import json
import os
import subprocess
import sys
from random import Random
from typing import Any

import pytest

from criproxy.model.cpuset import parse_cpuset as parse
from lab.benefit.cases import QUICK
from lab.benefit.programs.load import moments
from lab.containerd.containerd import available
from lab.provenance import ROOT


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a quick run writes as JSON."""
    if reason := available():
        pytest.skip(reason)
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU: there is none to be exclusive")
    folder = tmp_path_factory.mktemp("benefit")
    # Without equipment, as in a fresh clone: the quick run needs no more than the interpreter that it runs with.
    environment = {**os.environ, "CRIPROXY_BENEFIT_CACHE": str(folder / "nothing")}
    command = [sys.executable, "-m", "lab.benefit", "--quick", "--json", str(folder / "report.json")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    assert "a quick run has no figures" in done.stdout
    return dict(json.loads((folder / "report.json").read_text()))


def _samples(report: dict[str, Any], manager: str) -> list[dict[str, Any]]:
    return [sample for sample in report["raw"]["samples"] if sample["manager"] == manager]


def test_every_manager_has_a_sample_in_every_round(report: dict[str, Any]) -> None:
    """And in all of them the workload and its neighbours worked; seconds measure nothing, so there are no figures."""
    assert (report["has_figures"], report["usable"], report["cases"]) == (False, False, [])
    (case,) = QUICK.cases
    for manager in case.managers:
        samples = _samples(report, manager.name)
        assert [sample["round"] for sample in samples] == list(range(QUICK.rounds))
        assert all(sample["value"] > 0 and sample["neighbours_per_s"] > 0 for sample in samples)


def test_requests_come_one_by_one_or_at_once() -> None:
    """As many in a second on average."""
    for at_once in (1, 50):
        due = moments(1000, 60, Random(1), at_once)
        assert len(due) == pytest.approx(60_000, rel=0.1)
        assert len({*due}) * at_once == len(due)


def test_without_a_manager_all_share_all_cpus(report: dict[str, Any]) -> None:
    """The kubelet leaves it to the kernel."""
    for sample in _samples(report, "none"):
        assert sample["neighbours_cpus"] == [sample["cpus"]]
        assert parse(sample["cpus"]) == os.sched_getaffinity(0)


@pytest.mark.parametrize("manager", ["kubelet-static", "balloons"])
def test_a_manager_keeps_neighbours_away(report: dict[str, Any], manager: str) -> None:
    """The workload has its CPU alone, and starts a thread for that only."""
    for sample in _samples(report, manager):
        mine, theirs = parse(sample["cpus"]), set[int]().union(*map(parse, sample["neighbours_cpus"]))
        assert len(mine) == 1
        assert theirs
        assert not mine & theirs
        assert sample["details"]["threads"] == 1
