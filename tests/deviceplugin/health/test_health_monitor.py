"""What a program that watches GPUs means for the health of the cards, beside the inventory; the program is made up."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest

from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.configuration.configuration import Loaded
from criproxy.deviceplugin.health.cards_health import CardsHealth
from criproxy.deviceplugin.health.health_monitor import LONGEST_PAUSE_S, HealthMonitor, StaleView
from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.deviceplugin.nvidia.xids import XidFilter
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.plugin.plan import NVIDIA_ALONE
from tests.deviceplugin.hosts import a100, part, t4
from tests.deviceplugin.news import poll, running
from tests.deviceplugin.node import Log

LOADED = Loaded(plan=NVIDIA_ALONE)
UNKNOWN = "Unknown Error"


class Monitored:
    """A monitor of two GPUs, and what the program says."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._file.touch()
        self._news = asyncio.Event()
        self.log = Log()
        self.health = CardsHealth(self._news.set, lambda *_: None, self.log)
        command = ("/usr/bin/tail", "-n", "+1", "-f", "-s", "0.02", str(file))
        self.monitor = HealthMonitor(self.health, command, XidFilter(), lambda: None, self.log)
        self.events = 0

    def find(self, *gpus: Gpu, **lost: str) -> None:
        """NVML describes these GPUs."""
        found = Inventory(gpus=gpus, driver_version="550", lost={f"GPU-{name[-1]}": why for name, why in lost.items()})
        self.monitor.update_cards(LOADED, found)

    async def say(self, **lines: object) -> None:
        """Let the program say this; return when the monitor knows it."""
        self.events += 1
        xid = 1000 + self.events
        with self._file.open("a") as file:
            for key, value in (*lines.items(), ("event", {"gpu": "GPU-1", "xid": xid})):
                file.write(json.dumps({key: value}) + "\n")
        await poll(lambda: f"XID {xid}" in self._reasons())

    def _reasons(self) -> list[str]:
        return [cause.reason for cause in self.health.known[NVIDIA.name, "GPU-1"].health.causes]

    def lasting(self, card: str) -> list[str]:
        """Return the reasons of a card that have not ended."""
        return [cause.reason for cause in self.health.known[NVIDIA.name, card].health.causes if cause.lasts]


@asynccontextmanager
async def monitored(folder: Path) -> AsyncIterator[Monitored]:
    """Monitor GPU-0 and GPU-1, which both work."""
    one = Monitored(folder / "lines")
    one.find(t4(0), t4(1))
    async with running(one.monitor.events.run()):
        yield one
    one.health.stop()


async def test_an_error_about_a_gpu_is_no_answer(tmp_path: Path) -> None:
    """A GPU of which the program says nothing any more is as it was; it is well once its events are watched."""
    failed = f"nvmlDeviceRegisterEvents: {UNKNOWN}"
    async with monitored(tmp_path) as one:
        await one.say(registered={"gpus": ["GPU-1"], "failed": {"GPU-0": UNKNOWN}})
        assert one.lasting("GPU-0") == [failed]
        await one.say(registered={"gpus": ["GPU-1"]})
        assert one.lasting("GPU-0") == [failed]
        await one.say(registered={"gpus": ["GPU-1", "GPU-0"]})
        assert one.lasting("GPU-0") == []


async def test_a_gpu_without_events(tmp_path: Path) -> None:
    """It has none that could be missed."""
    async with monitored(tmp_path) as one:
        await one.say(registered={"gpus": ["GPU-1"], "failed": {"GPU-0": UNKNOWN}})
        await one.say(registered={"gpus": ["GPU-1"], "without_events": ["GPU-0"]})

        assert one.lasting("GPU-0") == []
        assert one.monitor.events_problem == ""


async def test_a_gpu_that_is_not_watched_is_a_problem(tmp_path: Path) -> None:
    """The metric and the log have it, unless the GPU is unhealthy anyhow: lost, or its registration has failed."""
    problem = "NVML does not report the events of GPU-0"
    async with monitored(tmp_path) as one:
        await one.say(registered={"gpus": ["GPU-1"]}, cards={"GPU-1": ""}, alive=True)
        assert one.monitor.events_problem == problem
        await one.say(cards={"GPU-1": ""})
        assert [keys for event, keys in one.log.lines if event == "NVML events are not received"] == [
            {"gpus": ["GPU-0"], "reason": "NVML does not describe the GPUs"}
        ]
        one.find(t4(0), t4(1), gpu0="GPU is lost")
        assert one.monitor.events_problem == ""
        one.find(t4(0), t4(1))
        assert one.monitor.events_problem == problem
        await one.say(registered={"gpus": ["GPU-1"], "failed": {"GPU-0": UNKNOWN}})
        assert one.monitor.events_problem == ""


@pytest.mark.parametrize("failed", [{}, {"GPU-0": UNKNOWN}], ids=["watched", "fails"])
async def test_a_mig_device_that_comes_back(tmp_path: Path, failed: dict[str, str]) -> None:
    """Its events are those of its GPU, whatever was said while it did not exist."""
    divided = replace(a100(0), mig_enabled=True, mig=(part(0),))
    device = divided.mig[0].uuid
    async with monitored(tmp_path) as one:
        one.find(divided, t4(1))
        one.find(a100(0), t4(1))
        await one.say(registered={"gpus": ["GPU-1", *({"GPU-0"} - failed.keys())], "failed": failed})
        one.find(divided, t4(1))

        assert one.lasting(device) == [f"nvmlDeviceRegisterEvents: {why}" for why in failed.values()]


LOST, WORKS = {"GPU-0": "GPU is lost", "GPU-1": ""}, {"GPU-0": "", "GPU-1": ""}
BOTH = {"GPU-0", "GPU-1"}


@pytest.mark.parametrize(
    ("faults", "working", "answered_s", "expected"),
    [
        pytest.param(LOST, BOTH, 1001.0, ("GPU-0",), id="contradicted"),
        pytest.param(LOST, BOTH, 999.0, (), id="an-answer-before-the-loss"),
        pytest.param(LOST, {"GPU-1"}, 1001.0, (), id="lost-in-a-new-process-as-well"),
        pytest.param(LOST, BOTH, None, (), id="no-answer"),
        pytest.param(WORKS, BOTH, 1001.0, (), id="works"),
    ],
)
def test_a_contradiction(
    faults: dict[str, str], working: set[str], answered_s: float | None, expected: tuple[str, ...]
) -> None:
    """Only an answer to a query that began after the program had called the GPU lost contradicts it."""
    view = StaleView(clock := Mock(return_value=1000.0))
    view.contradicted(LOST, {"GPU-1"}, 1.0)
    clock.return_value = 1005.0

    assert view.contradicted(faults, working, answered_s) == expected


def test_replacements_become_rarer() -> None:
    """They are at most as far apart as the longest pause; once all GPUs work, the next one is early again."""
    view, times = StaleView(clock := Mock(return_value=1000.0)), list[float]()
    while clock.return_value < 5000.0:
        if view.contradicted(LOST, BOTH, clock.return_value - 1.0):
            times.append(clock.return_value)
        clock.return_value += 5.0
    pauses = [after - before for before, after in pairwise(times)]
    view.contradicted(WORKS, BOTH, clock.return_value)
    clock.return_value += LONGEST_PAUSE_S
    found = list[str]()
    for _ in range(20):
        clock.return_value += 5.0
        found += view.contradicted(LOST, BOTH, clock.return_value - 1.0)

    assert 5 <= len(times) <= 12
    assert pauses[0] <= 65.0 < pauses[1]
    assert max(pauses) <= LONGEST_PAUSE_S + 5.0
    assert len(found) == 2
