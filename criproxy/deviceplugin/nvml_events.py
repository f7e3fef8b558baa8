"""Prints the events that NVML reports for GPUs; a separate program, so that it can be killed when its driver hangs.

Each line is JSON with one key: first ``registered``, then ``event`` for each event, and ``alive`` while there is none.
In addition, ``mig`` is which GPUs have MIG: at first, and when it changes, which no file shows and no event reports.
The program exits when its reader does, and when NVML fails.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from criproxy.discovery.nvml import text_of
from criproxy.model.plain import to_plain
from criproxy.nvidia.xids import EVENT_MASK, WAIT_MS, XID_CRITICAL, Event
from criproxy.observe.tether import python

COMMAND: tuple[str, ...] = python("criproxy.deviceplugin.nvml_events")


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
    events = nvml.nvmlEventSetCreate()
    emit("registered", _register(nvml, events))
    modes = dict[str, bool]()
    while True:
        now = {**modes, **dict(_mig_modes(nvml))}
        if now != modes:
            emit("mig", now)
            modes = now
        try:
            data = nvml.nvmlEventSetWait_v2(events, wait_ms)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_TIMEOUT:
                emit("event", Event(gpu=None, kind="failed"))
                return
            emit("alive", True)
            continue
        emit("event", _event(nvml, data))


def _register(nvml: ModuleType, events: Any) -> Registered:  # noqa: ANN401
    gpus, failed = list[str](), dict[str, str]()
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = text_of(nvml.nvmlDeviceGetUUID(handle))
        except nvml.NVMLError:
            continue  # the inventory reports it
        try:
            mask = nvml.nvmlDeviceGetSupportedEventTypes(handle) & EVENT_MASK
            nvml.nvmlDeviceRegisterEvents(handle, mask, events)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
                failed[uuid] = str(error)
            continue
        gpus.append(uuid)
    return Registered(gpus=tuple(gpus), failed=failed)


def _mig_modes(nvml: ModuleType) -> Iterator[tuple[str, bool]]:
    """Yield the UUID of each GPU that supports MIG, and whether it has it; without GPUs that fail at the moment."""
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            mode = nvml.nvmlDeviceGetMigMode(handle)[0]
            yield text_of(nvml.nvmlDeviceGetUUID(handle)), mode == nvml.NVML_DEVICE_MIG_ENABLE
        except nvml.NVMLError:
            continue


def _event(nvml: ModuleType, data: Any) -> Event:  # noqa: ANN401
    try:
        uuid: str | None = text_of(nvml.nvmlDeviceGetUUID(data.device))
    except nvml.NVMLError:
        uuid = None
    return Event(
        gpu=uuid,
        xid=data.eventData,
        gi=data.gpuInstanceId,
        ci=data.computeInstanceId,
        kind="xid" if data.eventType == XID_CRITICAL else "other",
    )


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
