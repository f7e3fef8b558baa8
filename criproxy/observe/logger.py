"""What the parts that run beside the calls expect of a log: a structlog logger, as far as they use one."""

from typing import Protocol


class Log(Protocol):
    """A structlog logger, as far as parts use one."""

    def info(self, event: str, **keys: object) -> object:
        """Something that users want to see happen."""
        ...

    def warning(self, event: str, **keys: object) -> object:
        """Something that needs attention when it repeats."""
        ...

    def error(self, event: str, **keys: object) -> object:
        """Something that failed."""
        ...
