"""Prints the events that NVML reports for GPUs; a separate program, so that it can be killed when its driver hangs.

Each line is JSON with one key: first ``registered``, then ``event`` for each event, and ``alive`` while there is none.
After each event, and every few seconds, ``cards`` is which GPUs work: NVML reports no event of a GPU that is lost in
silence. In addition, ``mig`` is which GPUs have MIG: at first, and when it changes, which no file shows and no event
reports. ``unheard`` is why NVML does not wait for events. The program exits when its reader does, and when NVML fails.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from ctypes import c_void_p, cast
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from criproxy.discovery.nvml import fault_of, is_lost, text_of
from criproxy.model.plain import to_plain
from criproxy.nvidia.xids import EVENT_MASK, WAIT_MS, XID_CRITICAL, Event
from criproxy.observe.tether import python

COMMAND: tuple[str, ...] = python("criproxy.deviceplugin.nvml_events")
SOON_MS = 200
"""How long after an event the GPUs are looked at: others may follow."""
PAUSE_S = 1.0
"""Before events are waited for again after an error."""
GONE = "it is no longer listed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The GPUs whose events are reported."""

    gpus: tuple[str, ...] = ()
    """Their UUIDs."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """By UUID, why the events of other GPUs are not; GPUs without events are in neither."""


Emit = Callable[[str, Any], None]
"""Prints a line with a key and its value."""


def watch(nvml: ModuleType, emit: Emit, wait_ms: int = WAIT_MS) -> None:
    """Report events until NVML fails.

    Args:
        nvml: The module pynvml.
        emit: Prints a line.
        wait_ms: How long to wait for an event before printing a line that shows that the program is alive.

    Raises:
        NVMLError: NVML does not work at all.
    """
    nvml.nvmlInit()
    cards = _Cards(nvml, emit)
    cards.register()
    while True:
        cards.look()
        try:
            cards.listen(wait_ms)
        except nvml.NVMLError as error:  # for example, because one of the GPUs is lost: the others may still work
            emit("unheard", f"NVML: {error}")
            time.sleep(PAUSE_S)
            cards.register()


class _Cards:
    """The GPUs that NVML lists."""

    def __init__(self, nvml: ModuleType, emit: Emit) -> None:
        self._nvml = nvml
        self._emit = emit
        self._events: Any = None
        self._handles: dict[int | None, str] = {}
        """UUIDs by the addresses of handles: of a GPU that is lost, NVML does not say it."""
        self._known: dict[int, str] = {}
        """UUIDs by indexes."""
        self._mig: dict[str, bool] = {}

    def register(self) -> None:
        """Register for the events of all GPUs, and report for which ones that is possible.

        Raises:
            NVMLError: NVML does not work at all.
        """
        nvml, gpus, failed = self._nvml, list[str](), dict[str, str]()
        with suppress(nvml.NVMLError):
            if self._events is not None:
                nvml.nvmlEventSetFree(self._events)
        self._events = nvml.nvmlEventSetCreate()
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = text_of(nvml.nvmlDeviceGetUUID(handle))
            except nvml.NVMLError:
                continue  # the inventory reports it
            self._handles[_address(handle)] = uuid
            try:
                mask = nvml.nvmlDeviceGetSupportedEventTypes(handle) & EVENT_MASK
                nvml.nvmlDeviceRegisterEvents(handle, mask, self._events)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
                    failed[uuid] = str(error)
                continue
            gpus.append(uuid)
        self._emit("registered", Registered(gpus=tuple(gpus), failed=failed))

    def look(self) -> None:
        """Report which GPUs work, and which ones have MIG; nothing is said of a GPU of which NVML says nothing."""
        before, self._known = self._known, {}
        faults, mig = dict[str, str](), dict(self._mig)
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                self._known[index] = uuid = text_of(self._nvml.nvmlDeviceGetUUID(handle))
                faults[uuid] = fault_of(self._nvml, handle)
                mig[uuid] = self._nvml.nvmlDeviceGetMigMode(handle)[0] == self._nvml.NVML_DEVICE_MIG_ENABLE
            except self._nvml.NVMLError as error:
                uuid = self._known.setdefault(index, before.get(index, ""))
                if is_lost(self._nvml, error):
                    faults[uuid] = str(error)
        listed = set(self._known.values())
        if "" not in listed:  # otherwise, that may be any of those that are missing
            faults |= dict.fromkeys(set(before.values()) - listed, GONE)
        faults.pop("", None)
        self._emit("cards", faults)
        if mig != self._mig:
            self._mig = mig
            self._emit("mig", mig)

    def listen(self, wait_ms: int) -> None:
        """Report events until there has been none for a while, or until some time after the first one.

        Raises:
            NVMLError: NVML does not wait for events.
        """
        end_s, is_quiet = time.monotonic() + wait_ms / 1000, True
        while (left_ms := round((end_s - time.monotonic()) * 1000)) > 0:
            try:
                data = self._nvml.nvmlEventSetWait_v2(self._events, left_ms)
            except self._nvml.NVMLError as error:
                if error.value != self._nvml.NVML_ERROR_TIMEOUT:
                    raise
                break
            self._emit("event", self._event(data))
            if is_quiet:
                end_s, is_quiet = min(end_s, time.monotonic() + SOON_MS / 1000), False
        self._emit("alive", True)

    def _event(self, data: Any) -> Event:  # noqa: ANN401
        nvml = self._nvml
        try:
            uuid: str | None = text_of(nvml.nvmlDeviceGetUUID(data.device))
        except nvml.NVMLError:
            uuid = self._handles.get(_address(data.device))
        return Event(
            gpu=uuid,
            xid=data.eventData,
            gi=data.gpuInstanceId,
            ci=data.computeInstanceId,
            kind="xid" if data.eventType == XID_CRITICAL else "other",
        )


def _address(handle: Any) -> int | None:  # noqa: ANN401
    return cast(handle, c_void_p).value


def _print(key: str, value: Any) -> None:  # noqa: ANN401
    sys.stdout.write(json.dumps({key: to_plain(value)}) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Report events on standard output."""
    try:
        import pynvml

        watch(pynvml, _print)
    except BrokenPipeError:
        return 0
    except ImportError:
        _print("problem", "the Python package nvidia-ml-py, which criproxy needs to query NVML, is not installed")
    except Exception as error:  # noqa: BLE001 (a third-party library, on a driver in any state)
        _print("problem", f"NVML: {error}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
