"""Prints the events that NVML reports for GPUs; a separate program, so that it can be killed when its driver hangs.

Each line is JSON with one key: first ``registered``, then ``event`` for each event, and ``alive`` while there is none.
After each event, and every few seconds, ``cards`` is which GPUs work: NVML reports no event of a GPU that is lost in
silence. At the same times, GPUs that could not be registered are tried again, and ``registered`` follows if one can be,
or if a GPU works again. In addition, ``mig`` is which GPUs have MIG: at first, and when it changes, which no file shows
and no event reports. ``unheard`` is why NVML does not wait for events. The program exits when its reader does, and when
NVML fails.
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

from criproxy.deviceplugin.cards.nvml_report import with_nvml
from criproxy.deviceplugin.nvidia.xids import EVENT_MASK, WAIT_MS, XID_CRITICAL, Event
from criproxy.host.nvml import fault_of, is_lost, text_of
from criproxy.model.text.plain import to_plain
from criproxy.process.tether import python

COMMAND: tuple[str, ...] = python("criproxy.deviceplugin.health.nvml_events")
SOON_MS = 200
"""How long after an event the GPUs are looked at: others may follow."""
PAUSE_S = 1.0
"""Before events are waited for again after an error."""
GONE = "it is no longer listed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The GPUs whose events are reported; a GPU of which NVML does not tell the UUID is nowhere."""

    gpus: tuple[str, ...] = ()
    """Their UUIDs."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """By UUID, why the events of other GPUs are not."""
    without_events: tuple[str, ...] = ()
    """The UUIDs of GPUs that have no events."""

    @property
    def settled(self) -> frozenset[str]:
        """The GPUs whose events are reported, as far as they have any."""
        return frozenset((*self.gpus, *self.without_events))


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
        self._faults: dict[str, str] = {}
        """What `look` has reported last."""
        self._registered = Registered()
        self._mig: dict[str, bool] = {}

    def register(self) -> None:
        """Register for the events of all GPUs, and report for which ones that is possible.

        After a registration that fails, NVML's set of events is in an undefined state, so another one takes its place.

        Raises:
            NVMLError: NVML does not work at all.
        """
        gpus, failed = self._gpus(), dict[str, str]()
        answers = self._subscribe_all(gpus)
        while errors := {uuid: error for uuid, error in answers.items() if error}:
            failed |= errors
            answers = self._subscribe_all({uuid: handle for uuid, handle in gpus.items() if uuid not in failed})
        self._registered = Registered(
            gpus=tuple(uuid for uuid, error in answers.items() if error == ""),
            failed=failed,
            without_events=tuple(uuid for uuid, error in answers.items() if error is None),
        )
        self._emit("registered", self._registered)

    def _gpus(self) -> dict[str, Any]:
        """Return the handles of the GPUs of which NVML tells the UUID, by that; the inventory reports the others."""
        found = dict[str, Any]()
        for index in range(self._nvml.nvmlDeviceGetCount()):
            with suppress(self._nvml.NVMLError):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = text_of(self._nvml.nvmlDeviceGetUUID(handle))
                found[uuid], self._handles[_address(handle)] = handle, uuid
        return found

    def _subscribe_all(self, gpus: Mapping[str, Any]) -> Mapping[str, str | None]:
        """Wait for the events of *gpus* from now on; by UUID, what `_subscribe` returns."""
        self._free(self._events)
        self._events = self._nvml.nvmlEventSetCreate()
        return {uuid: self._subscribe(handle, self._events) for uuid, handle in gpus.items()}

    def _subscribe(self, handle: Any, events: Any) -> str | None:  # noqa: ANN401
        """Return why the events of a GPU are not in the set *events*; empty if they are, None if it has none."""
        nvml = self._nvml
        try:
            mask = nvml.nvmlDeviceGetSupportedEventTypes(handle) & EVENT_MASK
            nvml.nvmlDeviceRegisterEvents(handle, mask, events)
        except nvml.NVMLError as error:
            return None if error.value == nvml.NVML_ERROR_NOT_SUPPORTED else str(error)
        return ""

    def _can_register(self, handle: Any) -> bool:  # noqa: ANN401
        """Whether the events of a GPU can be registered, tried with a set of its own: a failure spoils the set."""
        events = None
        try:
            events = self._nvml.nvmlEventSetCreate()
            return not self._subscribe(handle, events)
        except self._nvml.NVMLError:
            return False
        finally:
            self._free(events)

    def _free(self, events: Any) -> None:  # noqa: ANN401
        if events is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(events)

    def look(self) -> None:
        """Report which GPUs work, and which ones have MIG; nothing is said of a GPU of which NVML says nothing.

        A GPU that works again, or whose registration has failed and no longer does, is registered before that.
        """
        before, self._known = self._known, {}
        faults, mig, handles = dict[str, str](), dict(self._mig), dict[str, Any]()
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                self._known[index] = uuid = text_of(self._nvml.nvmlDeviceGetUUID(handle))
                handles[uuid] = handle
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
        was_faulty = [uuid for uuid, fault in self._faults.items() if fault]
        self._faults |= faults
        untried = [handle for uuid, handle in handles.items() if uuid not in self._registered.settled]
        if any(not self._faults[uuid] for uuid in was_faulty) or any(map(self._can_register, untried)):
            self.register()
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
            is_xid=data.eventType == XID_CRITICAL,
        )


def _address(handle: Any) -> int | None:  # noqa: ANN401
    return cast(handle, c_void_p).value


def _print(key: str, value: Any) -> None:  # noqa: ANN401
    sys.stdout.write(json.dumps({key: to_plain(value)}) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Report events on standard output."""
    return with_nvml(lambda nvml: watch(nvml, _print), lambda problem: _print("problem", problem))


if __name__ == "__main__":
    sys.exit(main())
