"""What the machine has to offer: the cards of each advertised class, found again whenever one comes or goes."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic

from criproxy.deviceplugin.nodes import Names, names_of_cards, with_render_nodes
from criproxy.deviceplugin.nvml_inventory import (
    NvmlProgram,
    gpus_of_driver,
    imex_channels,
    minors_of,
    platform_of,
    with_places,
)
from criproxy.deviceplugin.nvml_report import NvmlReport
from criproxy.deviceplugin.vgpu_host import HOST, VgpuFiles
from criproxy.devices.builtin import NVIDIA
from criproxy.devices.cards import Stock, Stocks
from criproxy.devices.classes import DeviceClass
from criproxy.devices.links import Peers
from criproxy.discovery.cards import DRIVER_TIMEOUT_S, DriverFiles, find_cards
from criproxy.discovery.patience import Hangs, Patience
from criproxy.nvidia.gpus import Gpu
from criproxy.nvidia.nodes import MigMinors, Platform
from criproxy.observe.ending import PART_S

POLL_S = 0.5
"""How often names are looked at."""
ASK_AGAIN_S = 30.0
"""After so long NVML is asked again where it had nothing to say although there are NVIDIA's nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a look waits for what may hang."""

    files_s: float = 5.0
    """For all files."""
    drivers_s: float = DRIVER_TIMEOUT_S
    """For those of drivers, which are among them."""
    nvml_s: float = 3.0
    """For NVML, whose first answer may take longer; cards of other classes need not wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The machine's cards at one moment."""

    stocks: Stocks = field(default_factory=dict)
    """By class, as files tell."""
    gpus: tuple[Gpu, ...] = ()
    """NVIDIA's, in the order of NVML."""
    peers: Mapping[str, Peers] = field(default_factory=dict)
    """Links between NVIDIA's GPUs, by UUID."""
    minors: MigMinors = field(default_factory=dict)
    platform: Platform = "nvml"
    imex_channels: tuple[str, ...] = ()
    """Their numbers, as far as their nodes exist."""
    driver_version: str = ""
    """NVIDIA's; empty where NVML does not say."""
    cuda_version: tuple[int, int] = (0, 0)
    lost: Mapping[str, str] = field(default_factory=dict)
    """By UUID, those of NVIDIA's GPUs and MIG devices that were there and that NVML cannot describe any more: why."""
    nvml_asked: bool = True
    """Whether NVML was asked, which alone knows the memory of NVIDIA's GPUs: else what depends on it is not judged."""
    pending: bool = False
    """Whether NVML has not answered yet, so that it is not known how NVIDIA's GPUs are divided."""
    files: VgpuFiles = HOST
    """Those of the host that vGPUs need."""
    problems: tuple[str, ...] = ()
    """What hangs, or cannot be read: sentences."""

    def stock(self, kind: DeviceClass) -> Stock:
        """The cards of a class."""
        return self.stocks.get(kind.name, Stock())


class Machine:
    """Looks at the machine; what hangs there holds up nobody, and cards that were known before stay meanwhile.

    Args:
        classes: the advertised ones.
        host_root: above /dev, /proc and /sys.
        nvml: asks NVML, if NVIDIA's cards are advertised.
        limits: of each look.
    """

    def __init__(
        self,
        classes: Iterable[DeviceClass],
        host_root: Path = Path("/"),
        nvml: NvmlProgram | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self.classes = tuple(classes)
        self.latest = Inventory()
        """What the last look found."""
        self._host_root = host_root
        self._nvml = nvml or NvmlProgram()
        self._patience = Patience()
        self._limits = limits
        self._files = DriverFiles(self._patience, limits.drivers_s)
        self._report = NvmlReport()
        self._asking: asyncio.Task[NvmlReport] | None = None
        self._pending = False
        self._nvml_hangs = False
        self._is_stale = False
        self._looked_s = float("-inf")
        self._names: Names | None = None
        self._wake = asyncio.Event()
        self._asked = False

    @property
    def has_nvidia(self) -> bool:
        """Whether NVIDIA's class is advertised."""
        return any(kind.name == NVIDIA.name for kind in self.classes)

    def wake(self) -> None:
        """Look at once, and ask NVML, whatever names say."""
        self._asked = True
        self._wake.set()

    def hint(self) -> None:
        """A name may have come or gone: compare names at once, as after an event of the kernel's about /dev."""
        self._wake.set()

    def use(self, classes: Iterable[DeviceClass]) -> None:
        """Advertise other classes from now on."""
        self.classes, self._names = tuple(classes), None
        self.wake()

    async def close(self) -> None:
        """Wait for NVML no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking}, timeout=PART_S)

    async def look(self) -> Inventory:
        """All cards; asks NVML, too."""
        problems, hung = list[str](), self._patience.hanging
        self._looked_s = monotonic()
        names, _ = await asyncio.gather(self._seen(problems), self._ask(problems))
        work = partial(_look, self.classes, self._host_root, self._files, self._report)
        try:
            found = await self._patience.wait("the machine's cards", work, self._limits.files_s)
        except Hangs as error:
            found = self.latest
            problems.append(str(error))
        hanging = sorted(self._patience.hanging)
        self._is_stale = bool(hung or hanging)  # what came back during this look is read in the next one
        problems += [f"{name} hangs" for name in hanging if not any(name in problem for problem in problems)]
        self._names = names
        unread = [f"NVML cannot describe GPU {index}: {why}" for index, why in self._report.unread.items()]
        host = VgpuFiles(self._host_root)
        self.latest = replace(found, files=host, pending=self._pending, problems=(*unread, *problems))
        return self.latest

    async def watch(self, found: Callable[[Inventory], None]) -> None:
        """Look for ever: *found* is called with each look that shows something else than the one before.

        A look with all of NVML follows only on names that have come or gone, on `wake`, and on NVML having failed.
        Nodes that vanish are told of at once, also while a look waits for a driver.
        """
        async with asyncio.TaskGroup() as group:
            looking: asyncio.Task[None] | None = None
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await self._wake.wait()
                self._wake.clear()
                names = await self._seen([])
                self._take_away(names, found)
                if looking is not None and not looking.done():
                    continue
                asked, self._asked = self._asked, False
                if asked or self._is_due(names):
                    looking = group.create_task(self._look_for(found))
                    looking.add_done_callback(lambda _: self._wake.set())

    async def _look_for(self, found: Callable[[Inventory], None]) -> None:
        before = self.latest
        if await self.look() != before:
            found(self.latest)

    def _take_away(self, names: Names | None, found: Callable[[Inventory], None]) -> None:
        """Tell of cards whose nodes have vanished since the last look."""
        if names is None or not (gone := (self._names or frozenset()) - names):
            return
        left = replace(self.latest, stocks={name: _left(stock, gone) for name, stock in self.latest.stocks.items()})
        if left != self.latest:
            self.latest = left
            found(left)

    def _is_due(self, names: Names | None) -> bool:
        if self._is_incomplete and monotonic() - self._looked_s >= ASK_AGAIN_S:
            return True
        return names is not None and names != self._names

    @property
    def _is_incomplete(self) -> bool:
        """Whether the last look missed something that may come without a name that comes or goes."""
        has_cards = bool(self.latest.stock(NVIDIA).cards)
        return self._is_stale or self._nvml_hangs or (has_cards and bool(self._report.problem))

    async def _seen(self, problems: list[str]) -> Names | None:
        work = partial(names_of_cards, self.classes, self._host_root)
        try:
            return await self._patience.wait("the device directories", work, self._limits.files_s)
        except Hangs as error:
            problems.append(str(error))
            return None

    async def _ask(self, problems: list[str]) -> None:
        """Keep what NVML said before while it hangs; what comes later than others want to wait is looked at then."""
        if not self.has_nvidia:
            return
        if self._asking is None:
            self._asking = asyncio.create_task(self._nvml.ask())
        asking = self._asking
        done, _ = await asyncio.wait({asking}, timeout=self._limits.nvml_s)
        self._pending = not done and not self._report.gpus
        if not done:
            problems.append("NVML has not answered yet")
            asking.add_done_callback(lambda _: self.wake())
            return
        self._asking, self._nvml_hangs = None, False
        try:
            self._report = asking.result().after(self._report)
        except Hangs as error:
            self._nvml_hangs = True
            problems.append(str(error))
            if not self._report.gpus:
                self._report = NvmlReport(problem=str(error))
            return
        if self._report.problem:
            problems.append(self._report.problem)


def _left(stock: Stock, gone: Names) -> Stock:
    """*stock* without nodes that are *gone*, and without cards that nothing else tells of."""
    left = [(card, tuple(path for path in card.nodes if path.lstrip("/") not in gone)) for card in stock.cards]
    return replace(stock, cards=tuple(replace(card, nodes=nodes) for card, nodes in left if nodes or card.id))


def _look(classes: tuple[DeviceClass, ...], host_root: Path, files: DriverFiles, report: NvmlReport) -> Inventory:
    found = find_cards(classes, host_root, files)
    stocks = {name: with_render_nodes(stock, host_root) for name, stock in found.items()}
    if NVIDIA.name not in stocks:
        return Inventory(stocks=stocks)
    gpus = report.gpus
    if not report.gpus and not report.driver_version:  # NVML cannot be asked, or has not been
        gpus = gpus_of_driver(stocks[NVIDIA.name], host_root, files)
    return Inventory(
        stocks=stocks,
        gpus=with_places(gpus, host_root, files),
        peers=report.peers,
        lost=report.lost,
        minors=minors_of(host_root, files),
        platform=platform_of(host_root, files, has_nvml=not report.problem),
        imex_channels=imex_channels(host_root),
        driver_version=report.driver_version,
        cuda_version=report.cuda_version,
    )
