"""Warnings that repeat: the log gets one only if its reason differs from that of the previous one."""

from dataclasses import dataclass

from criproxy.process.logger import Log


@dataclass(slots=True, repr=False)
class LogOnce:
    """The warnings about one thing that may fail again and again."""

    log: Log
    reason: str = ""
    """The reason of the last warning; empty: what failed works again, or has never failed."""

    def warning(self, event: str, reason: str) -> None:
        """Log a warning, unless the previous one had the same *reason*."""
        if reason != self.reason:
            self.reason = reason
            self.log.warning(event, reason=reason)

    def clear(self) -> None:
        """Log the next warning, whatever its reason."""
        self.reason = ""
