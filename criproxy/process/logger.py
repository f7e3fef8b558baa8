"""The protocol of the log that parts receive, the used part of a structlog logger; and lines that come once."""

from dataclasses import dataclass
from typing import Protocol


class Log(Protocol):
    """The used part of a structlog logger."""

    def info(self, event: str, **keys: object) -> object:
        """Log something that users want to see."""
        ...

    def warning(self, event: str, **keys: object) -> object:
        """Log something that needs attention if it repeats."""
        ...

    def error(self, event: str, **keys: object) -> object:
        """Log a failure."""
        ...


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
