"""The benchmark itself: a short run gives every figure, and a figure over its bar is found."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from criproxy.placement.policies import BUILTIN
from lab.bench.bars import Check, Speed
from lab.bench.devices import TITLES
from lab.bench.engine import EVENTS
from lab.bench.measure import Batch, Series
from lab.bench.plan import Findings, Run
from lab.bench.unusual import EVENTS as SCENE_EVENTS
from lab.bench.unusual import SCENES
from lab.bench.verdicts import call_lines, missed

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a quick run against the embedded runtime writes as JSON."""
    path = tmp_path_factory.mktemp("bench") / "bench.json"
    options = ("--quick", "--runtime", "embedded", "--runs", "1", "--known", "0,100")
    command = [sys.executable, "-m", "lab.bench", *options, "--json", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    assert "Calls through embedded" in done.stdout
    return dict(json.loads(path.read_text()))


def test_every_row_has_every_way(report: dict[str, Any]) -> None:
    """Each call is measured directly, through criproxy and through the annotating proxy."""
    lines = report["runtimes"]["embedded"]["calls"]
    rows: dict[tuple[str, int], set[str]] = {(line["call"], line["known"]): set() for line in lines}
    for line in lines:
        rows[line["call"], line["known"]].add(line["way"])

    assert set(rows) == {
        *(("Version", 0), ("ListContainers", 0)),
        *(("Version", 100), ("ListContainers", 100), ("CreateContainer", 100)),
        ("Version during 20 creates/s", 100),
    }
    assert all(ways == {"direct", "criproxy", "annotate"} for ways in rows.values())


def test_figures_are_plausible(report: dict[str, Any]) -> None:
    """Every call took time and CPU, and every way but the direct one is compared with that."""
    lines = report["runtimes"]["embedded"]["calls"]

    assert all(line["median_us"] > 0 and line["cpu_us"] > 0 for line in lines)
    assert all(line["p99_us"] >= line["median_us"] for line in lines)
    assert all((line["added_us"] is None) is (line["way"] == "direct") for line in lines)


def test_the_process_is_measured(report: dict[str, Any]) -> None:
    """Start, and memory by containers, are there."""
    found = report["runtimes"]["embedded"]
    whats = {line["what"] for line in found["process"]}

    assert {"exec to first Version, 100 known", "RSS, 0 known", "RSS, 100 known", "RSS above none, 100 known"} <= whats
    assert found["list_reply_bytes"]["0"] == 0 < found["list_reply_bytes"]["100"]
    assert report["versions"]["criproxy"]


def test_steps_of_the_engine_are_measured(report: dict[str, Any]) -> None:
    """Every policy and event has its CPU time; those that concern one container have bars."""
    lines = report["steps"]

    assert {line["policy"] for line in lines} == {*BUILTIN, "memory", "devices"}
    usual = [line for line in lines if line["event"] in EVENTS]
    assert len([line for line in usual if line["containers"] == 500]) == len(BUILTIN) * len(EVENTS)
    barred = [line for line in usual if line["has_bar"]]
    assert {line["containers"] for line in barred} == {16, 100, 500}
    assert all((line["linear_ms"] is None) is (line["containers"] < 500) for line in barred)
    assert len(lines) == len(usual) + len(SCENES) * len(SCENE_EVENTS) + len(BUILTIN) + 4 + 2 + len(TITLES)
    assert [line for line in lines if not line["median_ms"] <= line["p99_ms"]] == []
    # What a whole create adds to a direct one is a difference: on a busy machine it may be below nothing.
    whole = [line for line in lines if line["event"].startswith("whole create")]
    assert whole
    assert [line for line in lines if line not in whole and line["median_ms"] < 0] == []
    assert sum(line["median_ms"] for line in lines) > 0  # one step of microseconds may cost nothing on a coarse clock
    assert {line["event"] for line in usual if not line["has_bar"]} == {"policy changed for all", "CPU offline"}


def series(*batches: tuple[int, ...], cpu_us: int = 10) -> Series:
    """A series whose batches took so many µs per call."""
    return Series([Batch([us * 1000 for us in calls], cpu_us * 1000 * len(calls)) for calls in batches])


def test_the_worst_run_counts_against_its_own_speed() -> None:
    """A run is judged by the bar of its own moment, and the verdict is that of the worst."""
    findings = Findings("containerd")
    for direct_us, added_us in ((175, 60), (350, 120), (175, 80)):
        result = {"direct": series((direct_us,)), "criproxy": series((direct_us + added_us,))}
        findings.add("Version", 100, Run(result, Speed({"Version": direct_us / 175})))
    (_, line) = call_lines(findings)

    assert line.added == Check(80, 70)
    assert line.added_us == 80
    assert missed(findings) == [line]
