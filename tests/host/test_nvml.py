"""What NVML tells of GPUs, by a library that is made up below pynvml's functions."""

import sys
from collections.abc import Callable, Mapping
from ctypes import byref, c_uint, c_void_p, cast, memmove, sizeof
from typing import Any

import pynvml
import pytest

from criproxy.devices.classes.cards import Distance, NvLinks, Peers
from criproxy.host.nvml import NoNvml, address_of, ask_nvml
from tests.gates import Gate

Outcome = int
OK: Outcome = pynvml.NVML_SUCCESS


class Library:
    """Two GPUs with two NVLinks to each other and one to a switch; the second one has a MIG device."""

    def __init__(self, **functions: Callable[..., Outcome]) -> None:
        self.nvmlInitWithFlags = self.nvmlShutdown = lambda *_: OK
        self._functions = functions

    def __getattr__(self, name: str) -> Callable[..., Outcome]:
        """A function of the library, as pynvml looks for it."""
        if name in self._functions:
            return self._functions[name]
        raise AttributeError(name)


def _set(pointer: Any, value: int) -> Outcome:  # noqa: ANN401 (what ctypes' byref gives)
    pointer._obj.value = value
    return OK


def _uuid(handle: Any, buffer: Any, size: c_uint) -> Outcome:  # noqa: ANN401
    buffer.value = f"GPU-{_at(handle)}".encode() if _at(handle) < 10 else b"MIG-a"
    return OK


def _at(handle: Any) -> int:  # noqa: ANN401
    """The handle of a GPU is its index and one more; that of its MIG device is more than ten."""
    return (cast(handle, c_void_p).value or 0) - 1


def _handle(index: c_uint, pointer: Any) -> Outcome:  # noqa: ANN401
    memmove(pointer, byref(c_void_p(index.value + 1)), sizeof(c_void_p))
    return OK


def _mig(device: Any, index: c_uint, pointer: Any) -> Outcome:  # noqa: ANN401
    return _handle(c_uint(10), pointer) if index.value == 1 else int(pynvml.NVML_ERROR_NOT_FOUND)


def _remote(device: Any, link: int, pointer: Any) -> Outcome:  # noqa: ANN401
    pointer._obj.busId = b"00000000:AF:00.0" if _at(device) == 0 else b"00000000:3B:00.0"
    return OK


FUNCTIONS: Mapping[str, Callable[..., Outcome]] = {
    "nvmlDeviceGetCount_v2": lambda pointer: _set(pointer, 2),
    "nvmlDeviceGetHandleByIndex_v2": _handle,
    "nvmlDeviceGetUUID": _uuid,
    "nvmlDeviceGetTopologyCommonAncestor": lambda one, other, pointer: _set(pointer, pynvml.NVML_TOPOLOGY_SYSTEM),
    "nvmlDeviceGetNvLinkState": lambda device, link, pointer: (
        _set(pointer, int(link != 1)) if link < 4 else int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    ),
    "nvmlDeviceGetNvLinkRemoteDeviceType": lambda device, link, pointer: _set(pointer, 2 if link == 3 else 0),
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": _remote,
    "nvmlDeviceGetMaxMigDeviceCount": lambda device, pointer: _set(pointer, 7 if _at(device) else 0),
    "nvmlDeviceGetMigDeviceHandleByIndex": _mig,
}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[[Library], None]:
    """Let pynvml find another library."""

    def use(library: Library) -> None:
        monkeypatch.setattr(pynvml, "nvmlLib", library)

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return use


def test_two_linked_gpus(library: Callable[[Library], None]) -> None:
    """Distances by UUID, links that are up by what is at their other end, MIG devices."""
    library(Library(**FUNCTIONS))

    assert ask_nvml(60.0) == {
        "GPU-0": Peers({"GPU-1": Distance.SYS}, NvLinks({"0000:af:00.0": 2}, to_switches=1)),
        "GPU-1": Peers({"GPU-0": Distance.SYS}, NvLinks({"0000:3b:00.0": 2}, to_switches=1), ("MIG-a",)),
    }


def test_an_old_driver(library: Callable[[Library], None]) -> None:
    """What it does not know is left out."""
    library(Library(**{name: FUNCTIONS[name] for name in FUNCTIONS if "Link" not in name and "Topo" not in name}))

    assert ask_nvml(60.0) == {"GPU-0": Peers(), "GPU-1": Peers(parts=("MIG-a",))}


def test_a_driver_that_does_not_work(library: Callable[[Library], None]) -> None:
    """The sentence is that of NVML."""
    library(Library(nvmlDeviceGetCount_v2=lambda _: int(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)))

    with pytest.raises(NoNvml, match="NVML: Driver Not Loaded"):
        ask_nvml(60.0)


def test_a_driver_that_hangs(library: Callable[[Library], None]) -> None:
    """Nobody waits for it any longer than they want to."""
    ended = Gate()
    hangs = {**FUNCTIONS, "nvmlDeviceGetCount_v2": lambda pointer: int(not ended.wait())}
    library(Library(**hangs))

    with pytest.raises(NoNvml, match=r"has not answered for 0\.05 s"):
        ask_nvml(0.05)
    ended.set()


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what is missing."""
    monkeypatch.setitem(sys.modules, "pynvml", None)

    with pytest.raises(NoNvml, match="nvidia-ml-py, which criproxy needs to query NVML, is not installed"):
        ask_nvml(60.0)


@pytest.mark.parametrize(
    ("bus_id", "address"), [("00000000:3B:00.0", "0000:3b:00.0"), ("00010000:01:00.0", "10000:01:00.0"), ("", "")]
)
def test_addresses_are_written_as_the_kernel_does(bus_id: str, address: str) -> None:
    """With four digits of the domain where those do, and small letters."""
    assert address_of(bus_id) == address
