"""The device plugin as the daemon knows it: its last report, and whether it still runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, time

from criproxy.devices.published import Published


@dataclass(slots=True)
class DevicePlugin:
    """Keeps the last report; a restart of the daemon forgets it, and the device plugin soon reports again."""

    clock: Callable[[], float] = monotonic
    report: Published | None = None
    """The last one; None: it has not reported since the daemon's start."""
    reported_s: float = 0.0
    """When, in seconds since the epoch."""
    _at_s: float = 0.0
    _begun_s: float = 0.0
    _heard_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._heard_s = self.clock()

    def heard(self) -> None:
        """It has asked or told something."""
        self._heard_s = self.clock()

    @property
    def silent_s(self) -> float:
        """How long nothing has come from it: since the start of the daemon, if nothing ever has."""
        return self.clock() - self._heard_s

    def publish(self, report: Published) -> None:
        """Keep *report* in place of the last one."""
        if not self.runs:
            self._begun_s = self.clock()
        self.report, self.reported_s, self._at_s = report, time(), self.clock()
        self.heard()

    def ids(self) -> dict[tuple[str, str], tuple[int, int]]:
        """By class and resource, how many ids are healthy and how many are not; nothing where it does not run."""
        resources = self.report.resources if self.report and self.runs else ()
        return {(each.device_class, each.name): (each.healthy, each.ids - each.healthy) for each in resources}

    @property
    def runs_s(self) -> float:
        """For how long it has been running, if it runs."""
        return self.clock() - self._begun_s

    @property
    def runs(self) -> bool:
        """Whether its last report is recent."""
        return self.report is not None and self.clock() - self._at_s <= self.report.stale_after_s
