"""Prints the use of NVIDIA's cards, by NVML: a program that can be killed when its driver hangs.

Each line is a reading as docs/vgpu.md describes it, one in each period. If NVML does not work at all, the last line has
the ``problem``.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

from criproxy.deviceplugin.cards.nvml_report import query_or, supported_or, with_nvml
from criproxy.host.nvml import text_of
from criproxy.process.tether import python

GONE = "NVML does not list it any more"
_MIB = 1 << 20
_MICROSECONDS = 1_000_000
LONGEST_SAMPLE_US = 1_000_000
"""Drivers sample computing units every sixth of a second, or at longer intervals, up to this one."""
_ALL_PERCENT = 100
"""Drivers are known to report more for a process that has just started; such a sample is ignored."""
_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
"""A process may be in several lists, each with all of its memory; the last one has the memory of MPS clients."""
COMMAND: tuple[str, ...] = python("criproxy.deviceplugin.usage.nvml_usage")
SCAN_S = 30.0
"""The interval at which cards are listed anew: GPUs get lost, and MIG devices come and go."""
_NANOSECONDS_PER_MICROSECOND = 1000
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


@dataclass(slots=True)
class Card:
    """A GPU, or a MIG device."""

    id: str
    gpu: str
    """The id of the GPU."""
    handle: Any
    is_part: bool = False
    """Whether it is a MIG device, whose processes have no samples of computing units."""
    has_parts: bool = False
    """Whether it is divided into MIG devices, in whose lists the processes are."""
    seen_us: int = 0
    """The time of the newest sample that has been read."""
    cores: Mapping[int, float] = field(default_factory=dict)
    """By process, the mean of the new samples in the last reading that had any."""
    sampled_us: int = 0
    """The time of these samples; 0: there are none."""


class NvmlCards:
    """The cards that NVML lists.

    Only functions that a driver may lack or refuse are called, in whatever state it is: a card that fails is
    ``unread``, and what a card does not support is left out.

    Args:
        nvml: the library pynvml; an error that it raises about a card becomes part of the reading.
        now_us: returns microseconds since the epoch, as samples have them.
    """

    def __init__(self, nvml: ModuleType, now_us: Callable[[], int]) -> None:
        self._nvml = nvml
        self._now_us = now_us
        self._cards: list[Card] = []
        self._known: dict[str, str] = {}
        """All cards that NVML has ever listed, and the ids of their GPUs; MIG devices only while their GPU has them."""
        self._indexes: dict[int, str] = {}
        """The GPUs by the indexes that they had last."""
        self._lost: dict[str, str] = {}

    def scan(self) -> None:
        """List the cards.

        Raises:
            NVMLError: NVML does not work at all.
        """
        before, nvml = {card.id: card for card in self._cards}, self._nvml
        self._cards, self._lost = [], {}
        failed: dict[int, str] = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                found = list(self._at(index))
            except nvml.NVMLError as error:
                failed[index] = str(error)
                continue
            self._indexes[index] = gpu = found[0].id
            self._known = {card: of for card, of in self._known.items() if of != gpu}
            for card in found:
                known = before.get(card.id)
                card.seen_us = known.seen_us if known else self._now_us()
                if known:
                    card.cores, card.sampled_us = known.cores, known.sampled_us
                self._cards.append(card)
                self._known[card.id] = gpu
        self._note_lost(failed)

    def _note_lost(self, failed: Mapping[int, str]) -> None:
        """Note the cards that have vanished: NVML does not count some GPUs any more that fall off the bus.

        Args:
            failed: NVML's errors about GPUs, by index.
        """
        gpus = {card.gpu for card in self._cards}
        reasons = {self._indexes[index]: reason for index, reason in failed.items() if index in self._indexes}
        self._lost = {card: reasons.get(gpu, GONE) for card, gpu in self._known.items() if gpu not in gpus}
        self._lost |= {str(index): reason for index, reason in failed.items() if index not in self._indexes}

    def read(self) -> dict[str, Any]:
        """Take a reading."""
        processes, cards, unread = list[dict[str, Any]](), list[dict[str, Any]](), dict(self._lost)
        for card in self._cards:
            try:
                found = [] if card.has_parts else self._processes(card)
                cards.append(self._card(card))
            except self._nvml.NVMLError as error:
                unread[card.id] = str(error)
                continue
            processes += found
        return {"processes": processes, "cards": cards, "unread": unread}

    def _at(self, index: int) -> Iterator[Card]:
        """Yield a GPU and its MIG devices, whose numbers have gaps."""
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        divided = query_or(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0], None) == nvml.NVML_DEVICE_MIG_ENABLE
        gpu = text_of(nvml.nvmlDeviceGetUUID(handle))
        yield Card(gpu, gpu, handle, has_parts=divided)
        most = query_or(nvml, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle), 0) if divided else 0
        for number in range(most):
            try:
                part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
                yield Card(text_of(nvml.nvmlDeviceGetUUID(part)), gpu, part, is_part=True)
            except nvml.NVMLError:
                continue

    def _processes(self, card: Card) -> list[dict[str, Any]]:
        """Return the processes that use a card, each with the largest of the sizes that the lists have."""
        memory: dict[int, int] = {}
        for name in _LISTS:
            listed: Sequence[Any] = supported_or(self._nvml, partial(getattr(self._nvml, name), card.handle), ())
            for each in listed:
                pid, size = each.pid, each.usedGpuMemory
                if size is None:
                    raise self._nvml.NVMLError(self._nvml.NVML_ERROR_NOT_SUPPORTED)
                memory[pid] = max(memory.get(pid, 0), size)
        cores = self._cores(card)
        return [
            {
                "pid": pid,
                "card": card.id,
                "memory_mib": size // _MIB,
                **({} if cores is None else {"cores_percent": cores.get(pid, 0.0)}),
            }
            for pid, size in memory.items()
        ]

    def _cores(self, card: Card) -> Mapping[int, float] | None:
        """Return the mean of the newest samples of each process; None: the card has no samples at all.

        A process that has computed nothing has no sample, and if no process has one, NVML finds nothing. It finds
        nothing either if the driver has not sampled since the last reading: until it does, the last samples hold.
        """
        samples = None if card.is_part else self._samples(card)
        if samples is None:
            card.sampled_us = 0
            return None
        values: dict[int, list[int]] = {}
        seen_us = newest_us = card.seen_us
        for each in samples:  # each field is read once: that takes longer than all else
            at_us = each.timeStamp
            if at_us > seen_us and (percent := each.smUtil) <= _ALL_PERCENT:
                values.setdefault(each.pid, []).append(percent)
                newest_us = max(newest_us, at_us)
        if values:
            card.seen_us = card.sampled_us = newest_us
            card.cores = {pid: round(sum(own) / len(own), 1) for pid, own in values.items()}
        elif not 0 <= (now_us := self._now_us()) - card.sampled_us < LONGEST_SAMPLE_US:
            card.sampled_us, card.cores = now_us, {}
        return card.cores

    def _samples(self, card: Card) -> Sequence[Any] | None:
        """Return the samples since the last reading; None: the card has no samples at all."""
        try:
            query = partial(self._nvml.nvmlDeviceGetProcessUtilization, card.handle, card.seen_us)
            found: Sequence[Any] | None = supported_or(self._nvml, query, None)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_NOT_FOUND:
                return ()
            raise
        return found

    def _card(self, card: Card) -> dict[str, Any]:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(card.handle)
        cores = None
        if not card.is_part and not card.has_parts:
            cores = query_or(self._nvml, lambda: self._nvml.nvmlDeviceGetUtilizationRates(card.handle).gpu, None)
        reading = {"card": card.id, "memory_mib": memory.used // _MIB, "total_mib": memory.total // _MIB}
        if card.sampled_us:
            reading["sampled_s"] = card.sampled_us / _MICROSECONDS
        return reading if cores is None else {**reading, "cores_percent": min(cores, _ALL_PERCENT)}


def watch(nvml: ModuleType, report: Callable[[Any], None], period_s: float, sleep: Callable[[float], None]) -> None:
    """Report readings until NVML fails.

    Raises:
        NVMLError: NVML does not work at all.
    """
    nvml.nvmlInit()
    cards = NvmlCards(nvml, lambda: time.time_ns() // _NANOSECONDS_PER_MICROSECOND)
    scan_s = next_s = time.monotonic()
    while True:
        if time.monotonic() >= scan_s:
            cards.scan()
            scan_s = time.monotonic() + SCAN_S
        taken_s = time.monotonic()  # before the reading, which may lack processes that start meanwhile
        report({"monotonic_s": round(taken_s, 3), **cards.read()})
        next_s = max(next_s + period_s, time.monotonic())
        sleep(max(next_s - time.monotonic(), 0))


def _print(reading: Any) -> None:  # noqa: ANN401
    sys.stdout.write(_encode(reading) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Print readings, one in each period; the last argument is the period in seconds."""
    period_s = float(sys.argv[-1])
    return with_nvml(
        lambda nvml: watch(nvml, _print, period_s, time.sleep), lambda problem: _print({"problem": problem})
    )


if __name__ == "__main__":
    sys.exit(main())
