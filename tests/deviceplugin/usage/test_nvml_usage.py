"""What is read of NVML, in its quirks."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pynvml
import pytest

from criproxy.deviceplugin.usage.nvml_usage import NvmlCards, watch
from criproxy.deviceplugin.usage.readings import parse_reading
from tests.deviceplugin.hosts import a100, part, t4
from tests.nvml import Driver, Library, Used

NOW_US = 1_000_000


class Asked:
    """A driver that changes between two readings."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.now_us = NOW_US
        self.nvml = NvmlCards(pynvml, lambda: self.now_us)
        pynvml.nvmlLib = self.library = Library(lambda: self.driver)
        pynvml.nvmlInit()
        self.nvml.scan()

    def read(self, driver: Driver | None = None) -> dict[str, Any]:
        """Return one reading, of another driver where it is given."""
        self.driver = driver or self.driver
        found = self.nvml.read()
        parse_reading(json.loads(json.dumps(found)), "nvidia", 0.0)  # the format is the documented one
        return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Driver], Asked]:
    """Return what makes a driver that is asked."""
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return Asked


def use(pid: int, card: str = "GPU-0", memory_mib: int = 0, cores: float | None = 0.0) -> dict[str, Any]:
    """Return what is said of a process."""
    said = {"pid": pid, "card": card, "memory_mib": memory_mib}
    return said if cores is None else {**said, "cores_percent": cores}


def test_a_process_in_several_lists_counts_once(asked: Callable[[Driver], Asked]) -> None:
    """With the largest of its sizes; clients of MPS are only in their own list, and cards have their totals."""
    used = (
        Used(card="GPU-0", pid=10, memory_mib=500, lists=("compute", "graphics")),
        Used(card="GPU-0", pid=10, memory_mib=700, lists=("graphics",)),
        Used(card="GPU-0", pid=11, memory_mib=300, lists=("mps",)),
        Used(card="GPU-1", pid=10, memory_mib=100),
    )
    found = asked(Driver(gpus=(t4(0), t4(1)), used=used)).read()

    assert found["processes"] == [
        use(10, memory_mib=700),
        use(11, memory_mib=300),
        use(10, card="GPU-1", memory_mib=100),
    ]
    total = {"card": "GPU-1", "memory_mib": 100, "total_mib": 15 * 1024}
    assert found["cards"][1] == {**total, "sampled_s": 1.0, "cores_percent": 0}
    assert found["unread"] == {}


def cores(found: dict[str, Any]) -> tuple[list[float], float]:
    """What each process computes in a reading, and of when that is, in seconds of the driver's clock."""
    return [each["cores_percent"] for each in found["processes"]], found["cards"][0]["sampled_s"]


def test_samples_are_read_once(asked: Callable[[Driver], Asked]) -> None:
    """The newest stamp is kept and told; who is in no newer sample has computed nothing; impossible ones are none."""
    samples = ((NOW_US - 1, 90), (NOW_US + 1, 40), (NOW_US + 2, 60), (NOW_US + 3, 4_000_000_000))
    driver = Driver(gpus=(t4(0),), used=(Used(card="GPU-0", pid=10, samples=samples), Used(card="GPU-0", pid=11)))
    nvml = asked(driver)

    assert cores(nvml.read()) == ([50.0, 0.0], 1.000002)
    later = Used(card="GPU-0", pid=11, samples=((NOW_US + 2, 80), (NOW_US + 9, 20)))
    assert cores(nvml.read(replace(driver, used=(later,)))) == ([20.0], 1.000009)


def test_there_may_be_no_sample_between_two_readings(asked: Callable[[Driver], Asked]) -> None:
    """Drivers take one each second, or more often: until then the last one holds; after that, nobody has computed."""
    driver = Driver(gpus=(t4(0),), used=(Used(card="GPU-0", pid=10, samples=((NOW_US + 1, 60),)),))
    nvml, told = asked(driver), []
    for at_us in (2, 500_000, 1_000_000, 1_000_001, 1_400_000, 2_000_001):
        nvml.now_us = NOW_US + at_us
        told.append(cores(nvml.read()))
        nvml.nvml.scan()

    assert told == [([60.0], 1.000001)] * 3 + [([0.0], 2.000001)] * 2 + [([0.0], 3.000001)]


def test_mig_devices_have_their_own_processes(asked: Callable[[Driver], Asked]) -> None:
    """Their handles are asked, and the GPU's is not; nobody knows samples of their computing units."""
    gpu = replace(a100(0), mig_enabled=True, mig=(part(0), part(2)))
    samples = ((NOW_US + 1, 90),)
    used = tuple(Used(card=card, pid=10, memory_mib=100, samples=samples) for card in ("MIG-1", "GPU-0"))
    found = asked(Driver(gpus=(gpu,), used=used)).read()

    assert found["processes"] == [use(10, card="MIG-1", memory_mib=100, cores=None)]
    assert [each["card"] for each in found["cards"]] == ["GPU-0", "MIG-1", "MIG-3"]
    assert not [each for each in found["cards"] if "cores_percent" in each]


def test_a_list_that_the_driver_does_not_have_is_empty(asked: Callable[[Driver], Asked]) -> None:
    """Old drivers know no MPS, and cards without displays no graphics."""
    used = (Used(card="GPU-0", pid=10, memory_mib=5, lists=("compute", "mps")),)

    assert asked(Driver(gpus=(t4(0),), used=used, unsupported=("mps", "graphics"))).read()["processes"] == [
        use(10, memory_mib=5)
    ]


def test_a_card_that_fails_is_unread(asked: Callable[[Driver], Asked]) -> None:
    """The others are read on; a GPU that is lost takes its MIG devices with it."""
    divided = replace(a100(1), mig_enabled=True, mig=(part(0),))
    driver = Driver(gpus=(t4(0), divided, t4(2)), used=(Used(card="GPU-2", pid=10, memory_mib=-1),))
    nvml = asked(driver)
    found = nvml.read()
    assert found["unread"] == {"GPU-2": "Not Supported"}
    assert [each["card"] for each in found["cards"]] == ["GPU-0", "GPU-1", "MIG-1"]

    nvml.read(replace(driver, lost=(0,), used=()))
    assert nvml.read()["unread"] == {"GPU-0": "GPU is lost"}
    nvml.driver = replace(driver, lost=(1,), used=())
    pynvml.nvmlInit()
    nvml.nvml.scan()
    nvml.nvml.scan()
    assert nvml.read()["unread"] == {"GPU-1": "GPU is lost", "MIG-1": "GPU is lost"}


def test_a_gpu_that_is_not_counted_any_more_is_unread(asked: Callable[[Driver], Asked]) -> None:
    """As are its MIG devices, whichever GPU has its number by then, until it is back."""
    divided = replace(a100(0), mig_enabled=True, mig=(part(0),))
    nvml = asked(Driver(gpus=(divided, t4(1))))
    nvml.driver = Driver(gpus=(replace(t4(1), index=0),))
    pynvml.nvmlInit()
    for _ in range(2):
        nvml.nvml.scan()
        found = nvml.read()
        assert found["unread"] == dict.fromkeys(("GPU-0", "MIG-1"), "NVML does not list it any more")
        assert [each["card"] for each in found["cards"]] == ["GPU-1"]

    nvml.driver = Driver(gpus=(t4(0), t4(1)))
    pynvml.nvmlInit()
    nvml.nvml.scan()
    assert nvml.read()["unread"] == {}


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
