"""The machine's cards of each advertised class, scanned again whenever a card appears or disappears."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from posixpath import split
from time import monotonic

from criproxy.deviceplugin.cards import nvml_inventory
from criproxy.deviceplugin.cards.vgpu_files import HOST, VgpuFiles
from criproxy.deviceplugin.nvidia.gpus import Gpu, MigMinors, Platform, mig_minors
from criproxy.deviceplugin.nvidia.options import PluginConfig
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.cards import Card, Peers, Stock, Stocks
from criproxy.devices.classes.device_class import PLACEHOLDER, DeviceClass
from criproxy.devices.plugin.published import NOT_YET
from criproxy.host.cards import DRIVER_TIMEOUT_S, NVIDIA_GPUS, DriverFiles, find_cards
from criproxy.host.files import entries
from criproxy.host.patience import Hangs, Patience
from criproxy.host.places import PCI
from criproxy.model.text.notices import timestamp
from criproxy.process.tasks import wait_at_most

_RENDER_NODES = "/dev/dri"
Names = frozenset[str]
POLL_S = 0.5
"""How often the names of device nodes are compared."""
NVML_RETRY_S = 30.0
"""How soon NVML is queried again if it failed, or if cards do not work, although NVIDIA's cards exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a scan waits for what may hang."""

    files_s: float = 5.0
    """For all files."""
    drivers_s: float = DRIVER_TIMEOUT_S
    """For the files of drivers, which are among them."""
    nvml_s: float = 3.0
    """For NVML, whose first answer may take longer; cards of other classes need not wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The machine's cards at one moment."""

    stocks: Stocks = field(default_factory=dict)
    """By class, according to files."""
    gpus: tuple[Gpu, ...] = ()
    """NVIDIA's GPUs in the order of NVML, or without its answer as far as the files of the driver list them."""
    peers: Mapping[str, Peers] = field(default_factory=dict)
    """Links between NVIDIA's GPUs, by UUID."""
    minors: MigMinors = field(default_factory=dict)
    platform: Platform = "nvml"
    imex_channels: tuple[str, ...] = ()
    """The numbers of the IMEX channels whose nodes exist."""
    driver_version: str = ""
    """Of NVIDIA's driver; empty if NVML does not report it."""
    cuda_version: tuple[int, int] = (0, 0)
    lost: Mapping[str, str] = field(default_factory=dict)
    """NVIDIA's GPUs and MIG devices that do not work, or that NVML can no longer describe: UUID to reason."""
    nvml_queried: bool = True
    """Whether NVML was queried, the only source for the memory of GPUs: if not, rules about memory are not checked."""
    pending: bool = False
    """Whether NVML has never answered, so that the division of NVIDIA's GPUs is unknown."""
    answered_s: float | None = None
    """When the query of NVML began whose answer this is, on the monotonic clock; None: there is none."""
    nvml_problem: str = ""
    """Why NVML does not answer, on a machine with NVIDIA's cards; they are as it described them before."""
    nvml_since_s: float | None = None
    """Since when, in seconds since the epoch."""
    files: VgpuFiles = HOST
    """The files of the host that vGPUs need."""
    problems: tuple[str, ...] = ()
    """Sentences about what hangs or cannot be read."""

    @property
    def nvml_text(self) -> str:
        """Why NVML does not answer, and since when; empty if it does."""
        since = f" (since {timestamp(self.nvml_since_s)})" if self.nvml_since_s is not None else ""
        return f"{self.nvml_problem}{since}" if self.nvml_problem else ""

    def stock(self, kind: DeviceClass) -> Stock:
        """Return the cards of a class."""
        return self.stocks.get(kind.name, Stock())

    def platform_for(self, config: PluginConfig) -> Platform:
        """Return how NVIDIA's cards are found: according to the file, or to the machine."""
        match config.flags.device_discovery_strategy:
            case "tegra":
                return "tegra"
            case "nvml" if self.platform == "tegra":
                return "nvml"
        return self.platform


class Machine:
    """Scans the machine; a driver that hangs delays nothing else, and the cards known before are kept meanwhile.

    Args:
        classes: The advertised classes.
        host_root: Root of /dev, /proc and /sys.
        nvml: Queries NVML, if NVIDIA's cards are advertised.
        limits: Timeouts of each scan.
        files: The files of the host that vGPUs need.
    """

    def __init__(
        self,
        classes: Iterable[DeviceClass],
        host_root: Path = Path("/"),
        nvml: nvml_inventory.NvmlProgram | None = None,
        limits: Limits = Limits(),
        files: VgpuFiles | None = None,
    ) -> None:
        self.classes = tuple(classes)
        self.latest = Inventory()
        """The result of the last scan."""
        self._host_root = host_root
        self._vgpu_files = files or VgpuFiles(host_root)
        self._nvml = nvml or nvml_inventory.NvmlProgram()
        self._patience = Patience()
        self._limits = limits
        self._files = DriverFiles(self._patience, limits.drivers_s)
        self._is_stale = False
        self._is_nvml_late = False
        self._scanned_s = float("-inf")
        self._names: Names | None = None
        self._wake = asyncio.Event()
        self._scan_requested = False

    @property
    def has_nvidia(self) -> bool:
        """Whether NVIDIA's class is advertised."""
        return any(kind.name == NVIDIA.name for kind in self.classes)

    def wake(self) -> None:
        """Scan immediately and query NVML, whether names have changed or not."""
        self._scan_requested = True
        self._wake.set()

    def use(self, classes: Iterable[DeviceClass]) -> None:
        """Scan for other classes from now on."""
        self.classes, self._names = tuple(classes), None
        self.wake()

    def beside(self, classes: Iterable[DeviceClass]) -> "Machine":
        """Return what scans for other classes, beside this one."""
        return Machine(classes, self._host_root, self._nvml, limits=self._limits, files=self._vgpu_files)

    async def close(self) -> None:
        """Stop waiting for NVML."""
        await self._nvml.close()

    async def scan(self, *, query: bool = True) -> Inventory:
        """Return all cards; queries NVML, too, unless *query* is false."""
        problems, hung = list[str](), self._patience.hanging
        self._scanned_s = monotonic()
        names, _ = await asyncio.gather(self._read_names(problems), self._query_nvml(wanted=query))
        nvml = self._nvml.state
        work = partial(_scan_files, self.classes, self._host_root, self._files, nvml)
        try:
            inventory = await self._patience.wait("the machine's cards", work, self._limits.files_s)
        except Hangs as error:
            inventory = self.latest
            problems.append(str(error))
        hanging = sorted(self._patience.hanging)
        self._is_stale = bool(hung or hanging)  # a driver that came back during this scan is read in the next one
        problems += [f"{name} hangs" for name in hanging if not any(name in problem for problem in problems)]
        self._names = names
        if self.has_nvidia:
            unread = [f"NVML cannot describe GPU {index}: {why}" for index, why in nvml.report.unread.items()]
            problems[:0] = [*unread, nvml.problem] if nvml.problem else unread
        has_cards = bool(inventory.gpus or inventory.stock(NVIDIA).cards)
        self.latest = replace(
            inventory,
            files=self._vgpu_files,
            nvml_problem=nvml.problem if has_cards else "",
            nvml_since_s=nvml.since_s if has_cards else None,
            problems=tuple(problems),
        )
        return self.latest

    async def watch(self, changed: Callable[[Inventory], None]) -> None:
        """Scan forever; call *changed* with each result that differs from the previous one.

        A scan with NVML runs only after names have appeared or disappeared, after `wake`, and after NVML has failed.
        Nodes that vanish are reported at once, even while a scan waits for a driver.
        """
        async with asyncio.TaskGroup() as group:
            scanning: asyncio.Task[None] | None = None
            while True:
                await wait_at_most(POLL_S, self._wake.wait())
                self._wake.clear()
                names = await self._read_names([])
                self._remove_vanished(names, changed)
                if scanning is not None and not scanning.done():
                    continue
                is_news = self._scan_requested or (names is not None and names != self._names)
                if is_news or self._is_nvml_late or self._is_due:
                    query = is_news or (self._is_due and not self._nvml.runs)
                    self._scan_requested = self._is_nvml_late = False
                    scanning = group.create_task(self._rescan(changed, query=query))
                    scanning.add_done_callback(lambda _: self._wake.set())

    async def _rescan(self, changed: Callable[[Inventory], None], *, query: bool) -> None:
        before = self.latest
        if await self.scan(query=query) != before:
            changed(self.latest)

    def _remove_vanished(self, names: Names | None, changed: Callable[[Inventory], None]) -> None:
        """Report the loss of cards whose nodes have vanished since the last scan."""
        if names is None or not (gone := (self._names or frozenset()) - names):
            return
        remaining = replace(
            self.latest, stocks={name: _remaining(stock, gone) for name, stock in self.latest.stocks.items()}
        )
        if remaining != self.latest:
            self.latest = remaining
            changed(remaining)

    @property
    def _is_due(self) -> bool:
        """Whether the last scan missed something that may appear without a change of names, and was some time ago."""
        nvml, latest = self._nvml, self.latest
        is_incomplete = self._is_stale or latest.nvml_problem or latest.lost or nvml.runs or nvml.state.report.unread
        return bool(is_incomplete) and monotonic() - self._scanned_s >= NVML_RETRY_S

    async def _read_names(self, problems: list[str]) -> Names | None:
        work = partial(names_of_cards, self.classes, self._host_root)
        try:
            return await self._patience.wait("the device directories", work, self._limits.files_s)
        except Hangs as error:
            problems.append(str(error))
            return None

    async def _query_nvml(self, *, wanted: bool) -> None:
        """Query NVML if that is *wanted*; what it answers after the time limit is used by another scan.

        A query that is already in progress may answer what is no longer true, so that another one follows.
        """
        if not (wanted and self.has_nvidia):
            return
        if not self._nvml.runs:
            await self._nvml.query(self._limits.nvml_s, self._use_late_answer)
            return
        if await self._nvml.query(self._limits.nvml_s, self.wake):
            self.wake()

    def _use_late_answer(self) -> None:
        self._is_nvml_late = True
        self._wake.set()


def _remaining(stock: Stock, gone: Names) -> Stock:
    """Return *stock* without nodes in *gone*, and without cards that have no other evidence."""
    remaining = [(card, tuple(path for path in card.nodes if path.lstrip("/") not in gone)) for card in stock.cards]
    return replace(stock, cards=tuple(replace(card, nodes=nodes) for card, nodes in remaining if nodes or card.id))


def _scan_files(
    classes: tuple[DeviceClass, ...], host_root: Path, files: DriverFiles, nvml: nvml_inventory.NvmlState
) -> Inventory:
    changed = find_cards(classes, host_root, files)
    stocks = {
        name: replace(stock, cards=tuple(_with_render_node(card, host_root) for card in stock.cards))
        for name, stock in changed.items()
    }
    if NVIDIA.name not in stocks:
        return Inventory(stocks=stocks)
    report = nvml.report
    gpus = report.gpus if nvml.is_answered else nvml_inventory.gpus_of_driver(stocks[NVIDIA.name], host_root, files)
    return Inventory(
        stocks=stocks,
        gpus=nvml_inventory.with_places(gpus, host_root, files),
        peers=report.peers,
        lost=report.lost,
        minors=mig_minors(files.read([host_root / nvml_inventory.MIG_MINORS])[0]),
        platform=nvml_inventory.platform_of(
            host_root, files, has_nvml=nvml.is_answered or nvml.problem in ("", NOT_YET)
        ),
        imex_channels=nvml_inventory.imex_channels(host_root),
        driver_version=report.driver_version,
        cuda_version=report.cuda_version,
        pending=not nvml.is_answered,
        answered_s=nvml.answered_s,
    )


def names_of_cards(classes: Iterable[DeviceClass], host_root: Path) -> Names:
    """Return the names that depend on cards: while they are the same, so are the cards."""
    found = set[str]()
    for folder, pattern in _patterns(tuple(classes)).items():
        found |= {f"{folder}/{name}" for name in entries(host_root / folder) if pattern.fullmatch(name)}
    found |= {f"{NVIDIA_GPUS}/{name}" for name in entries(host_root / NVIDIA_GPUS)}
    return frozenset(found.union(nvml_inventory.mig_instances(host_root)))


@lru_cache(maxsize=8)
def _patterns(classes: tuple[DeviceClass, ...]) -> Mapping[str, re.Pattern[str]]:
    """Return, by directory, a pattern for the names of the nodes that matter there."""
    found: dict[str, list[str]] = {_RENDER_NODES[1:]: ["renderD*"], "dev": ["dxg"]}
    for kind in classes:
        for path in (*kind.per_device, *kind.shared):
            folder, name = split(PLACEHOLDER.sub("*", path))
            found.setdefault(folder.lstrip("/"), []).append(name)
    return {folder: re.compile("|".join(map(_expression, names))) for folder, names in found.items()}


def _expression(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")


def _with_render_node(card: Card, host_root: Path) -> Card:
    """Add the render node of a card of /dev/dri, which programs use to compute.

    The kernel numbers them differently, but their PCI function is the same.
    """
    if not card.pci or not any(path.startswith(f"{_RENDER_NODES}/") for path in card.nodes):
        return card
    names = [name for name in entries(host_root / PCI / card.pci / "drm") if name.startswith("renderD")]
    more = [path for name in names if (host_root / (path := f"{_RENDER_NODES}/{name}").lstrip("/")).exists()]
    return replace(card, nodes=(*card.nodes, *(path for path in more if path not in card.nodes)))
