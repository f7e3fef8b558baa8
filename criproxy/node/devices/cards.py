"""The machine's cards, read from the files of drivers. Such a file may hang: creates wait for it only up to a limit."""

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from criproxy.devices.classes.cards import Stocks
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.host.cards import DriverFiles, card_names, find_cards
from criproxy.host.patience import Hangs, Patience
from criproxy.node.context import Context

SCAN = "the scan for cards"

Classes = tuple[DeviceClass, ...]


@dataclass(slots=True, repr=False)
class MachineCards:
    """Scans for cards, and keeps the result."""

    context: Context
    patience: Patience
    scanned: Classes = ()
    """The classes of the last scan."""
    found: Stocks = field(default_factory=dict)
    """The cards that it found, by class."""
    _names: frozenset[str] | None = None
    """The names of files at that time; None if the scan has to be repeated."""
    _hanging: frozenset[str] = frozenset()
    """The files that hang, as they were last logged."""
    _files: DriverFiles = field(init=False)

    def __post_init__(self) -> None:
        self._files = DriverFiles(self.patience, self.context.settings.device_limits.drivers_s)

    @property
    def _limit_s(self) -> float:
        """The limit of a scan; the files of drivers together have a shorter one."""
        return self.context.settings.device_limits.scan_s

    async def scan(self, classes: Classes) -> None:
        """Find the cards of *classes*; if a file hangs, the result of the last scan stays."""
        host_root, files, self._names = self.context.settings.host_root, self._files, None

        def work() -> tuple[Classes, frozenset[str], Stocks]:
            return classes, card_names(classes, host_root), find_cards(classes, host_root, files)

        with suppress(Hangs):  # `DeviceGuard.problem` names it
            while True:
                self.scanned, names, self.found = await self.patience.wait(SCAN, work, self._limit_s)
                if self.scanned == classes:  # otherwise the scan was already running, for the classes before a reload
                    break
            self._names = None if self.patience.hanging else names
        self._log_hanging()

    async def rescan(self, classes: Classes) -> bool:
        """Scan again if files were added or removed since the last scan; this check takes milliseconds."""
        if self._names is not None:
            work = partial(card_names, classes, self.context.settings.host_root)
            try:
                if await self.patience.wait("the device directories", work, self._limit_s) == self._names:
                    return False
            except Hangs:
                return False
        await self.scan(classes)
        return True

    async def now(self, classes: Classes) -> Stocks:
        """Return the present cards of *classes*, for a command; if a file hangs, those of the last scan."""
        work = partial(find_cards, classes, self.context.settings.host_root, self._files)
        with suppress(Hangs):
            return await self.patience.wait(f"{SCAN} of a command", work, self._limit_s)
        return self.found

    def _log_hanging(self) -> None:
        hanging = frozenset(self.patience.hanging)
        for name in sorted(hanging - self._hanging):
            self.context.counters.device_evidence["driver", "hanging"] += 1
            self.context.log.warning("a scan of devices hangs", at=name)
        for name in sorted(self._hanging - hanging):
            self.context.log.info("a scan of devices no longer hangs", at=name)
        self._hanging = hanging
