"""The protocol of the log that parts receive: the used part of a structlog logger."""

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
