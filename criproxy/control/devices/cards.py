"""The machine's cards, read from the files of drivers. Such a file may hang: no create waits for it beyond a bound."""

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from criproxy.control.context import Context
from criproxy.devices.cards import Stocks
from criproxy.devices.classes import DeviceClass
from criproxy.discovery.cards import DriverFiles, card_names, find_cards
from criproxy.discovery.patience import Hangs, Patience

SCAN = "the scan for cards"

Classes = tuple[DeviceClass, ...]


@dataclass(slots=True, repr=False)
class MachineCards:
    """Scans for cards, and keeps what was found."""

    context: Context
    patience: Patience
    scanned: Classes = ()
    """The classes of the last scan."""
    found: Stocks = field(default_factory=dict)
    """What it found."""
    _names: frozenset[str] | None = None
    """The names of files at that time; None where the scan has to be repeated."""
    _hanging: frozenset[str] = frozenset()
    """What the log says hangs."""
    _files: DriverFiles = field(init=False)

    def __post_init__(self) -> None:
        self._files = DriverFiles(self.patience, self.context.settings.device_limits.drivers_s)

    @property
    def _limit_s(self) -> float:
        """For a scan; files of drivers have a shorter limit of their own."""
        return self.context.settings.device_limits.look_s

    async def scan(self, classes: Classes) -> None:
        """Find the cards of *classes*; while something hangs, the cards known before stay."""
        host_root, files, self._names = self.context.settings.host_root, self._files, None

        def work() -> tuple[Classes, frozenset[str], Stocks]:
            return classes, card_names(classes, host_root), find_cards(classes, host_root, files)

        with suppress(Hangs):  # `DeviceGuard.problem` names it
            while True:
                self.scanned, names, self.found = await self.patience.wait(SCAN, work, self._limit_s)
                if self.scanned == classes:  # else it was under way, for the classes before a reload
                    break
            self._names = None if self.patience.hanging else names
        self._log_hanging()

    async def rescan(self, classes: Classes) -> bool:
        """Scan again if files came or went since the last scan, which costs milliseconds to find out."""
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
        """The cards of *classes* at this moment, for a command; those of the last scan while something hangs."""
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
