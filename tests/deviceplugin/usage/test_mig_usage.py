"""Quotas of vGPUs that are MIG devices: judged by their memory, and never by their cores, which no driver reports."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pynvml
import pytest

from criproxy.deviceplugin.usage.class_judge import ClassJudge, with_unlisted
from criproxy.deviceplugin.usage.grants_client import Granted, parse_granted
from criproxy.deviceplugin.usage.nvml_usage import NvmlCards
from criproxy.deviceplugin.usage.quota_verdicts import Over, Verdict, Within
from criproxy.deviceplugin.usage.readings import parse_reading
from criproxy.devices.plugin.plan import QuotaActions, QuotaPlan
from criproxy.devices.usage.values import container_uses
from criproxy.model.text.plain import to_plain
from tests.deviceplugin.hosts import a100, part
from tests.deviceplugin.usage.hosts import container_id, grant
from tests.nvml import Driver, Library, Used

PLAN = QuotaPlan(
    period_s=1.0, grace_s=2.0, samples=2, margin_mib=512, actions=QuotaActions(memory="stop", cores="stop")
)
NAMES = {10: "web", 20: "batch"}
"""By process, its container."""
NOW_US = 1_000_000_000
PERCENT = 100
"""What each process computes in each second, as the driver says that lies."""
DIVIDED = replace(a100(0), mig_enabled=True, mig=(part(0), part(1)))


class LyingLibrary(Library):
    """A driver that answers questions about the cores of MIG devices with what the whole GPU does."""

    def nvmlDeviceGetProcessUtilization(self, *arguments: Any) -> int:  # noqa: ANN401, D102
        self._driver = replace(self._driver, gpus=(a100(0),), used=_on("GPU-0", self._driver.used))
        try:
            return super().nvmlDeviceGetProcessUtilization(*arguments)
        finally:
            self._driver = self._read()


def _on(gpu: str, used: tuple[Used, ...]) -> tuple[Used, ...]:
    return tuple(replace(each, card=gpu) for each in used)


class Node:
    """A node whose driver is read once a second, and judged."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.at_s = 0.0
        self._judge = ClassJudge("nvidia", PLAN)
        self.granted = _granted()
        pynvml.nvmlLib = LyingLibrary(lambda: self.driver)
        pynvml.nvmlInit()
        self.nvml = NvmlCards(pynvml, lambda: NOW_US + int(self.at_s * 1_000_000))
        self.nvml.scan()

    def read(self, count: int) -> list[Verdict]:
        """Return what follows from so many readings."""
        found: list[Verdict] = []
        for _ in range(count):
            self.at_s += 1.0
            sample = int(NOW_US + self.at_s * 1_000_000), PERCENT
            self.driver = replace(
                self.driver, used=tuple(replace(each, samples=(sample,)) for each in self.driver.used)
            )
            pynvml.nvmlInit()  # reads the driver anew
            reading = parse_reading({**self.nvml.read(), "monotonic_s": self.at_s}, "nvidia", self.at_s)
            reading = with_unlisted(reading, self.granted)
            located = tuple(
                each.of(each.process._replace(start_ticks=1), container_id(NAMES[each.process.pid]))
                for each in reading.processes
            )
            reading = replace(reading, processes=located)
            verdicts, _ = self._judge.after(reading, self.granted, container_uses("nvidia", located))
            found += verdicts
        return found


def _granted() -> Granted:
    """Return what the daemon says: web has the first MIG device, and batch the second one."""
    cards = (("web", "MIG-1"), ("batch", "MIG-2"))
    grants = [grant(name, card=card, kind="nvidia", memory_mib=4864, cores=14) for name, card in cards]
    return parse_granted({"containers": [to_plain(each) for each in grants], "incidents": []})


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Callable[[Driver], Node]:
    """Return what makes a node with a driver."""
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return Node


def used(web_mib: int, batch_mib: int) -> tuple[Used, ...]:
    """Return what both use."""
    return Used(card="MIG-1", pid=10, memory_mib=web_mib), Used(card="MIG-2", pid=20, memory_mib=batch_mib)


def test_cores_are_never_judged(node: Callable[[Driver], Node]) -> None:
    """Both compute all the time, on devices with 14 % of the cores: nobody knows of which share of their own device."""
    assert node(Driver(gpus=(DIVIDED,), used=used(4000, 4000))).read(30) == []


def test_memory_is_judged_by_device(node: Callable[[Driver], Node]) -> None:
    """Who has more than its device, as by a driver that shares memory, is over its quota; its neighbour is not."""
    made = node(Driver(gpus=(DIVIDED,), used=used(6000, 4000)))

    (over,) = made.read(10)
    assert isinstance(over, Over)
    assert (over.key.container_id, over.key.card, over.key.quantity) == (container_id("web"), "MIG-1", "memory")
    assert (over.used, over.allowed) == (6000, 4864)

    made.driver = replace(made.driver, used=used(4000, 4000))
    assert made.read(3) == [Within(over.key)]
