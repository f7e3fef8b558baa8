"""Prints who uses how much of NVIDIA's cards, by NVML: a program that can be ended when its driver hangs.

Each line is a reading as docs/vgpu.md describes it, one for each period. Where NVML does not work at all, the last line
has the ``problem``. It asks what can be asked of a driver in any state: a card that fails is ``unread``, and whatever a
card does not support is left out.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

COMMAND: tuple[str, ...] = (sys.executable, "-m", "criproxy.watcher.nvml_usage")
LOOK_AGAIN_S = 30.0
"""So often it looks which cards there are: GPUs get lost, and MIG devices come and go."""
GONE = "NVML does not list it any more"
_MIB = 1 << 20
_MICROSECONDS = 1_000_000
LONGEST_SAMPLE_US = 1_000_000
"""Drivers sample computing units every sixth of a second, or more rarely, up to this."""
_ALL_PERCENT = 100
"""Drivers are known to report more for a process that has just begun: such a sample is none."""
_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
"""A process may be in several of them, each with all of its memory; that of clients of MPS is in the last."""


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
    """The time of the newest sample that was read."""
    cores: Mapping[int, float] = field(default_factory=dict)
    """By process, the mean of the samples that were new when there were some last."""
    sampled_us: int = 0
    """When that was; 0: there are none."""


class Nvml:
    """Asks pynvml, *nvml*.

    Args:
        nvml: the library; whatever it raises of a card is said of that card.
        now_us: microseconds since the epoch, as samples have them.
    """

    def __init__(self, nvml: ModuleType, now_us: Callable[[], int]) -> None:
        self._nvml = nvml
        self._now_us = now_us
        self._cards: list[Card] = []
        self._known: dict[str, str] = {}
        """All cards that there ever were, and the ids of their GPUs: MIG devices only while their GPU has them."""
        self._indexes: dict[int, str] = {}
        """The GPUs by the numbers that they had last."""
        self._lost: dict[str, str] = {}

    def look(self) -> None:
        """Find the cards.

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
        self._lose(failed)

    def _lose(self, failed: Mapping[int, str]) -> None:
        """Note the cards that were there before, and are not: some GPUs that fall off the bus are not counted any more.

        Args:
            failed: what NVML says of the GPUs with these indexes.
        """
        gpus = {card.gpu for card in self._cards}
        reasons = {self._indexes[index]: reason for index, reason in failed.items() if index in self._indexes}
        self._lost = {card: reasons.get(gpu, GONE) for card, gpu in self._known.items() if gpu not in gpus}
        self._lost |= {str(index): reason for index, reason in failed.items() if index not in self._indexes}

    def read(self) -> dict[str, Any]:
        """One reading."""
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
        """A GPU and its MIG devices; their numbers have gaps."""
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        divided = self._maybe(lambda: nvml.nvmlDeviceGetMigMode(handle)[0]) == nvml.NVML_DEVICE_MIG_ENABLE
        gpu = _text(nvml.nvmlDeviceGetUUID(handle))
        yield Card(gpu, gpu, handle, has_parts=divided)
        for number in range(self._maybe(lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0 if divided else 0):
            try:
                part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
                yield Card(_text(nvml.nvmlDeviceGetUUID(part)), gpu, part, is_part=True)
            except nvml.NVMLError:
                continue

    def _processes(self, card: Card) -> list[dict[str, Any]]:
        """Who uses a card; a process has the largest of the sizes that the lists have of it."""
        memory: dict[int, int] = {}
        for name in _LISTS:
            for each in self._list(name, card):
                if each.usedGpuMemory is None:
                    raise self._nvml.NVMLError(self._nvml.NVML_ERROR_NOT_SUPPORTED)
                memory[each.pid] = max(memory.get(each.pid, 0), each.usedGpuMemory)
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

    def _list(self, name: str, card: Card) -> Sequence[Any]:
        try:
            found: Sequence[Any] = getattr(self._nvml, name)(card.handle)
        except self._nvml.NVMLError as error:
            if self._is_missing(error):
                return ()
            raise
        return found

    def _cores(self, card: Card) -> Mapping[int, float] | None:
        """The mean of the newest samples of each process; None: the card has none.

        Processes that have computed nothing have no sample, and where nobody has, NVML finds nothing. It does not
        either where the driver has not sampled since the last reading: for so long, the last samples hold.
        """
        samples = None if card.is_part else self._samples(card)
        if samples is None:
            card.sampled_us = 0
            return None
        values: dict[int, list[int]] = {}
        newest_us = card.seen_us
        for each in samples:
            if each.timeStamp > card.seen_us and each.smUtil <= _ALL_PERCENT:
                values.setdefault(each.pid, []).append(each.smUtil)
                newest_us = max(newest_us, each.timeStamp)
        if values:
            card.seen_us = card.sampled_us = newest_us
            card.cores = {pid: round(sum(own) / len(own), 1) for pid, own in values.items()}
        elif not 0 <= (now_us := self._now_us()) - card.sampled_us < LONGEST_SAMPLE_US:
            card.sampled_us, card.cores = now_us, {}
        return card.cores

    def _samples(self, card: Card) -> Sequence[Any] | None:
        """Those since the last reading; None: the card has none at all."""
        try:
            found: Sequence[Any] = self._nvml.nvmlDeviceGetProcessUtilization(card.handle, card.seen_us)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_NOT_FOUND:
                return ()
            if self._is_missing(error):
                return None
            raise
        return found

    def _card(self, card: Card) -> dict[str, Any]:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(card.handle)
        cores = None
        if not card.is_part and not card.has_parts:
            cores = self._maybe(lambda: self._nvml.nvmlDeviceGetUtilizationRates(card.handle).gpu)
        said = {"card": card.id, "memory_mib": memory.used // _MIB, "total_mib": memory.total // _MIB}
        if card.sampled_us:
            said["sampled_s"] = card.sampled_us / _MICROSECONDS
        return said if cores is None else {**said, "cores_percent": min(cores, _ALL_PERCENT)}

    def _maybe(self, ask: Callable[[], int]) -> int | None:
        """What a card or driver may not know."""
        try:
            return ask()
        except self._nvml.NVMLError:
            return None

    def _is_missing(self, error: Any) -> bool:  # noqa: ANN401
        """Whether a driver or card does not have the call."""
        nvml = self._nvml
        return error.value in {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND}


def watch(nvml: ModuleType, tell: Callable[[Any], None], period_s: float, sleep: Callable[[float], None]) -> None:
    """Tell readings until NVML fails.

    Raises:
        NVMLError: NVML does not work at all.
    """
    nvml.nvmlInit()
    asked = Nvml(nvml, lambda: time.time_ns() * _MICROSECONDS // 1_000_000_000)
    look_s = next_s = time.monotonic()
    while True:
        if time.monotonic() >= look_s:
            asked.look()
            look_s = time.monotonic() + LOOK_AGAIN_S
        taken_s = time.monotonic()
        tell({"monotonic_s": round(taken_s, 3), **asked.read()})  # before it: whoever has begun meanwhile is not in it
        next_s = max(next_s + period_s, time.monotonic())
        sleep(max(next_s - time.monotonic(), 0))


def _text(value: Any) -> str:  # noqa: ANN401 (bytes in older versions)
    return value.decode() if isinstance(value, bytes) else str(value)


def _tell(reading: Any) -> None:  # noqa: ANN401
    sys.stdout.write(json.dumps(reading, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Tell readings on standard output, one for each period: the seconds that are the last argument."""
    try:
        import pynvml

        watch(pynvml, _tell, float(sys.argv[-1]), time.sleep)
    except BrokenPipeError:
        return 0
    except ImportError:
        _tell({"problem": "the Python package nvidia-ml-py, which criproxy needs to query NVML, is not installed"})
    except Exception as error:  # noqa: BLE001 (a library of others, on a driver in any state)
        _tell({"problem": f"NVML: {error}"})
    return 1


if __name__ == "__main__":
    sys.exit(main())
