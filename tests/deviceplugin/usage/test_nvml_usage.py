"""The program that prints what NVML reports."""

import time
from typing import Any

import pynvml
import pytest

from criproxy.deviceplugin.usage.nvml_usage import watch
from tests.deviceplugin.hosts import t4
from tests.nvml import Driver, Library


def test_a_reading_is_reported_in_each_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until NVML fails; its reason is raised."""
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pynvml, "nvmlLib", Library(lambda: Driver(gpus=(t4(0),))))
    reports: list[Any] = []
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise InterruptedError

    began_s = time.monotonic()
    with pytest.raises(InterruptedError):
        watch(pynvml, reports.append, 0.5, sleep)
    assert [len(each["cards"]) for each in reports] == [1, 1, 1]
    assert began_s <= reports[0]["monotonic_s"] + 0.001 <= reports[2]["monotonic_s"] + 0.002 <= time.monotonic() + 0.003
    assert all(each >= 0 for each in slept)
    assert slept[0] <= 0.5

    pynvml._nvmlGetFunctionPointer_cache.clear()
    pynvml.nvmlLib = Library(lambda: Driver(fails=int(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)))
    with pytest.raises(pynvml.NVMLError, match="Driver Not Loaded"):
        watch(pynvml, reports.append, 0.5, sleep)
