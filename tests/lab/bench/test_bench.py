"""The benchmark itself: a short run gives every figure, and a figure over its bar is found."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from criproxy.placement.policies import BUILTIN
from lab.bench.bars import CLASSES, Speed
from lab.bench.classes import SERVICE, STOPPED, WITH, WITHOUT
from lab.bench.devices import TITLES
from lab.bench.engine import EVENTS
from lab.bench.plan import Findings
from lab.bench.report import call_figures, figures_of
from lab.bench.unusual import SCENES, USUAL
from lab.bench.ways import Batch, Series

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


def ways_of(figures: list[dict[str, Any]], what: str) -> dict[str, dict[str, float]]:
    """Way → name → value of what was measured of *what*."""
    ways: dict[str, dict[str, float]] = {}
    for figure in figures:
        if figure["what"] == what:
            ways.setdefault(figure["way"], {})[figure["name"]] = figure["value"]
    return ways


@pytest.mark.parametrize(
    "call",
    [
        *(f"{call}, {known} known" for call in ("Version", "ListContainers") for known in (0, 100)),
        *("CreateContainer, 100 known", "Version during 20 creates/s, 100 known"),
    ],
)
def test_calls_are_measured(report: dict[str, Any], call: str) -> None:
    """Directly and through criproxy; every call took time and CPU, and criproxy is compared with the direct way."""
    ways = ways_of(report["runtimes"]["embedded"], call)

    assert set(ways) == {"direct", "criproxy"}
    for way, found in ways.items():
        assert 0 < found["median"] <= found["p99"]
        assert found["CPU"] > 0
        assert ("added" in found) is (way == "criproxy")


def test_the_process_is_measured(report: dict[str, Any]) -> None:
    """Lives, rest, start, and memory by containers, are there."""
    for what in ("create and remove, 100 known", "at rest, 100 known", "memory, 0 known", "memory, 100 known"):
        assert ways_of(report["runtimes"]["embedded"], what)["criproxy"]
    start = ways_of(report["runtimes"]["embedded"], "start, 100 known")["criproxy"]
    assert 0 < start["exec to first Version"] < start["exec to first create"]
    assert report["versions"]["criproxy"]


def test_steps_of_the_engine_are_measured(report: dict[str, Any]) -> None:
    """Every policy and event has its CPU time; those that concern one container have bars."""
    steps = report["steps"]

    assert {step["way"] for step in steps} == {*BUILTIN, "memory", "devices"}
    for event, (_, has_bar) in EVENTS.items():
        medians = [step for step in steps if step["what"] == f"{event}, 500 containers" and step["name"] == "median"]
        assert {step["way"] for step in medians} == set(BUILTIN)
        assert all((step["limit"] is not None) is has_bar for step in medians)
    assert {f"{scene}: {event}" for scene in SCENES for event in ("comes", *USUAL)} <= {step["what"] for step in steps}
    assert set(TITLES.values()) <= {step["what"] for step in steps}
    assert sum(step["value"] for step in steps) > 0  # one step of microseconds may cost nothing on a coarse clock


def test_classes_are_measured(report: dict[str, Any]) -> None:
    """Beside the same without them: calls, CPU time of daemon and service, rest, and a service that does not answer."""
    found = report["classes"]

    assert ways_of(found, "create")[WITH].keys() - ways_of(found, "create")[WITHOUT].keys() == {"added", "CPU added"}
    for what in ("create and remove", "at rest"):
        assert {*ways_of(found, what)} == {WITHOUT, WITH, SERVICE}
    assert ways_of(found, "create and remove")[SERVICE]["CPU"] > 0
    delayed = {each["what"]: each["value"] for each in found if each["name"] == "delayed"}
    assert delayed == {f"{STOPPED} creates, service stopped": 0, f"{STOPPED} starts, service stopped": 1}
    bars = {(each["what"], each["name"]) for each in found if each["limit"] is not None}
    assert bars == CLASSES.keys()


def series(*batches: tuple[int, ...], cpu_us: int = 10) -> Series:
    """A series whose batches took so many µs per call."""
    return Series([Batch([us * 1000 for us in calls], cpu_us * 1000 * len(calls)) for calls in batches])


def test_the_worst_run_counts_against_its_own_speed() -> None:
    """A run is judged by the bar of its own moment, and the verdict is that of the worst."""
    findings = Findings("containerd")
    for direct_us, added_us in ((175, 60), (350, 120), (175, 80)):
        result = {"direct": series((direct_us,)), "criproxy": series((direct_us + added_us,))}
        findings.add("Version", 100, result, Speed({"Version": direct_us / 175}))

    (added,) = (figure for figure in call_figures(findings) if figure.limit and figure.name == "added")

    assert (added.way, added.value, added.limit) == ("criproxy", 80, 70)
    assert added in [figure for figure in figures_of(findings) if not figure.ok]
