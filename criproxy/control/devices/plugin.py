"""What the daemon knows about the device plugin: its last report, and whether it still runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, time

from criproxy.devices.published import Published


@dataclass(slots=True)
class DevicePlugin:
    """The last report. It is lost when the daemon restarts, and the device plugin soon sends another one."""

    clock: Callable[[], float] = monotonic
    report: Published | None = None
    """The last report; None if there was none since the daemon's start."""
    reported_s: float = 0.0
    """When it arrived, in seconds since the epoch."""
    _at_s: float = 0.0
    _seen_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._seen_s = self.clock()

    def note_command(self) -> None:
        """Record that the device plugin has sent a command."""
        self._seen_s = self.clock()

    @property
    def silent_s(self) -> float:
        """Seconds since its last command, or since the start of the daemon."""
        return self.clock() - self._seen_s

    def publish(self, report: Published) -> None:
        """Replace the last report with *report*."""
        self.report, self.reported_s, self._at_s = report, time(), self.clock()
        self.note_command()

    def ids(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return how many ids are healthy and unhealthy, by class and resource; empty if no device plugin runs."""
        resources = self.report.resources if self.report and self.runs else ()
        return {(each.device_class, each.name): (each.healthy, each.ids - each.healthy) for each in resources}

    @property
    def runs(self) -> bool:
        """Whether its last report is recent."""
        return self.report is not None and self.clock() - self._at_s <= self.report.stale_after_s
