"""NVIDIA's GPUs: from NVML, which is queried in a separate process, or without NVML from the files of the driver."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, time

from criproxy.deviceplugin.cards.nvml_report import NvmlReport
from criproxy.deviceplugin.nvidia.gpus import IMEX_CHANNELS, Gpu, Platform
from criproxy.devices.classes.cards import Stock
from criproxy.devices.plugin.published import NOT_YET
from criproxy.host.cards import NVIDIA_GPUS, DriverFiles
from criproxy.host.files import entries
from criproxy.host.nvml import INITIALISED_S, address_of
from criproxy.host.places import PCI, Place
from criproxy.model.text.plain import from_plain
from criproxy.process.children import Child
from criproxy.process.tasks import PART_S
from criproxy.process.tether import python

COMMAND: tuple[str, ...] = python("criproxy.deviceplugin.cards.nvml_report")
SLOW_S = 30.0
"""A query that takes longer is a problem, even if an earlier one was answered."""
MIG_MINORS = "proc/driver/nvidia-caps/mig-minors"
CAPABILITIES = "proc/driver/nvidia/capabilities"
_DXG = "dev/dxg"
_TEGRA_FILE = "etc/nv_tegra_release"
_FAMILY = "sys/devices/soc0/family"
_MODEL = re.compile(r"^Model:\s*(\S.*?)\s*$", re.MULTILINE)
_UUID = re.compile(r"^GPU UUID:\s*(GPU-\S+)\s*$", re.MULTILINE)
_CHANNEL = re.compile("channel([0-9]{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlState:
    """What is known from NVML at one moment."""

    report: NvmlReport = field(default_factory=NvmlReport)
    """The last answer."""
    answered_s: float | None = None
    """When the query with that answer began, on the monotonic clock; None: there was no answer yet."""
    problem: str = ""
    """Why NVML does not answer; empty if it does."""
    since_s: float | None = None
    """Since when, in seconds since the epoch."""

    @property
    def is_answered(self) -> bool:
        """Whether there was any answer."""
        return self.answered_s is not None


class NvmlProgram:
    """Queries NVML, one process at a time, and keeps its last answer: an error is none, and neither is silence.

    Args:
        command: Prints an `NvmlReport` as JSON.
        timeout_s: Limit after which the process is considered to hang.
    """

    def __init__(self, command: Sequence[str] = COMMAND, timeout_s: float = INITIALISED_S) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._child = Child()
        self._query: asyncio.Task[None] | None = None
        self._began_s = self._began_at_s = 0.0
        self._state = NvmlState()

    @property
    def runs(self) -> bool:
        """Whether a query is in progress."""
        return self._query is not None

    @property
    def state(self) -> NvmlState:
        """What is known now."""
        is_slow = not self._state.is_answered or monotonic() - self._began_s > SLOW_S
        if self.runs and is_slow and not self._state.problem:
            return replace(self._state, problem=NOT_YET, since_s=self._began_at_s)
        return self._state

    async def query(self, wait_s: float, late: Callable[[], None]) -> bool:
        """Query NVML, or wait for the query in progress; return whether it ended in time. If not, call *late* then."""
        if self._query is None:
            self._query = asyncio.create_task(self._ask(), name="query NVML")
        query = self._query
        done, _ = await asyncio.wait({query}, timeout=wait_s)
        if not done:
            query.add_done_callback(lambda _: late())
        return bool(done)

    async def close(self) -> None:
        """End the query that is in progress."""
        if self._query is not None:
            self._query.cancel()
            await asyncio.wait({self._query}, timeout=PART_S)

    async def _ask(self) -> None:
        self._began_s, self._began_at_s = monotonic(), time()
        try:
            report = await self._run()
        finally:
            self._query = None
        if report.problem:
            since_s = self._state.since_s if self._state.problem else self._began_at_s
            self._state = replace(self._state, problem=report.problem, since_s=since_s)
        else:
            self._state = NvmlState(report=report.after(self._state.report), answered_s=self._began_s)

    async def _run(self) -> NvmlReport:
        """Return the report of the process; a report with a *problem* if it has none."""
        try:
            lines = await self._child.start(self._command)
        except OSError as error:
            return NvmlReport(problem=f"the program that queries NVML cannot be run: {error.strerror}")
        try:
            async with asyncio.timeout(self._timeout_s):
                output, status = await lines.read(), await self._child.ended()
        except TimeoutError:
            return NvmlReport(problem=f"NVML has not answered for {self._timeout_s:.3g} s")
        finally:
            await self._child.end()
        try:
            return from_plain(NvmlReport, json.loads(output))
        except ValueError:
            return NvmlReport(problem=f"NVML: the program that queries it exited with {status} before it answered")


def with_places(gpus: Sequence[Gpu], host_root: Path, files: DriverFiles) -> tuple[Gpu, ...]:
    """Return *gpus* with their NUMA nodes and PCI classes, as far as sysfs has them."""
    addresses = {gpu.uuid: address for gpu in gpus if (address := address_of(gpu.pci_bus_id))}
    places = files.places(host_root, {uuid: (address, ()) for uuid, address in addresses.items()})
    texts = files.read(host_root / PCI / address / "class" for address in addresses.values())
    found = dict(zip(addresses, zip(places, texts, strict=True), strict=True))
    return tuple(_with_place(gpu, *found.get(gpu.uuid, (Place(), ""))) for gpu in gpus)


def _with_place(gpu: Gpu, place: Place, pci_class: str) -> Gpu:
    node = place.numa_node if place.numa_node >= 0 else None
    number = int(pci_class, 16) if re.fullmatch(r"\s*(0[xX])?[0-9a-fA-F]+\s*", pci_class) else None
    return replace(gpu, numa_node=node, pci_class=number)


def gpus_of_driver(stock: Stock, host_root: Path, files: DriverFiles) -> tuple[Gpu, ...]:
    """Return the GPUs according to the files of the driver, for machines without NVML.

    They do not contain the UUIDs of MIG devices: a GPU with MIG devices is offered only with the strategy ``none``,
    and as a whole.

    Args:
        stock: The cards that the files list; cards without a UUID cannot be offered.
        host_root: Root of /proc.
        files: Reads the files of the driver.
    """
    models = _models(host_root, files)
    return tuple(
        Gpu(
            index=index,
            uuid=card.id,
            name=models.get(card.id, ""),
            memory_mib=0,
            minor=card.number,
            pci_bus_id=card.pci,
            mig_enabled=any(
                name.startswith("gi") for name in entries(host_root / CAPABILITIES / f"gpu{card.number}/mig")
            ),
        )
        for index, card in enumerate(card for card in stock.cards if card.id)
    )


def _models(host_root: Path, files: DriverFiles) -> dict[str, str]:
    """Return the product names by UUID."""
    paths = [host_root / NVIDIA_GPUS / address / "information" for address in entries(host_root / NVIDIA_GPUS)]
    found = ((_UUID.search(text), _MODEL.search(text)) for text in files.read(paths))
    return {uuid[1]: model[1] for uuid, model in found if uuid and model}


def mig_instances(host_root: Path) -> list[str]:
    """Return the names of all MIG instances: while they are the same, so are the MIG devices."""
    found = []
    for gpu in entries(host_root / CAPABILITIES):
        for gi in entries(host_root / CAPABILITIES / gpu / "mig"):
            found += [f"{gpu}/{gi}/{ci}" for ci in entries(host_root / CAPABILITIES / gpu / "mig" / gi)]
    return found


def imex_channels(host_root: Path) -> tuple[str, ...]:
    """Return the numbers of the machine's IMEX channels."""
    found = map(_CHANNEL.fullmatch, entries(host_root / IMEX_CHANNELS.lstrip("/")))
    return tuple(sorted((each[1] for each in found if each), key=int))


def platform_of(host_root: Path, files: DriverFiles, *, has_nvml: bool) -> Platform:
    """Return how the machine's cards are found if the configuration does not define it."""
    if (host_root / _DXG).exists():
        return "wsl"
    is_tegra = (host_root / _TEGRA_FILE).exists() or files.read([host_root / _FAMILY])[0].lower().startswith("tegra")
    return "tegra" if is_tegra and not has_nvml else "nvml"
