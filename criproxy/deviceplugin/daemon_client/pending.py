"""Reports that have not been delivered yet: the latest one for each subject, up to a maximum number."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Report = TypeVar("Report")


@dataclass(slots=True, repr=False)
class PendingReports(Generic[Key, Report]):
    """The undelivered reports, the oldest first.

    Args:
        maximum: the number of reports that are kept; adding another one drops the oldest.
    """

    maximum: int
    _reports: dict[Key, Report] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._reports)

    def __contains__(self, key: Key) -> bool:
        return key in self._reports

    def get(self, key: Key) -> Report | None:
        """Return the report about *key*, or None."""
        return self._reports.get(key)

    def add(self, key: Key, report: Report) -> None:
        """Add a report as the newest; it replaces an older one about the same *key*."""
        self._reports.pop(key, None)
        if len(self._reports) >= self.maximum:
            del self._reports[next(iter(self._reports))]
        self._reports[key] = report

    def snapshot(self) -> list[tuple[Key, Report]]:
        """Return the reports as they are now; others may be added while these are sent."""
        return [*self._reports.items()]

    def is_current(self, key: Key, report: Report) -> bool:
        """Whether *report* is still pending: it has been neither removed nor replaced by a newer one."""
        return self._reports.get(key) is report

    def remove(self, key: Key, report: Report) -> bool:
        """Remove *report*, unless a newer one has replaced it; return whether it was removed."""
        is_current = self.is_current(key, report)
        if is_current:
            del self._reports[key]
        return is_current
