"""A log that never fails whoever writes to it."""

from criproxy.control.failures import Failures
from criproxy.control.settings import Log


class CarefulLog:
    """Passes lines to another log; one that it cannot take is counted.

    Args:
        log: gets the lines.
        failures: told of those that are lost.
    """

    def __init__(self, log: Log, failures: Failures) -> None:
        self._log = log
        self._failures = failures

    def info(self, event: str, **keys: object) -> None:
        """Something that users want to see happen."""
        with self._failures.harmless("a log line"):
            self._log.info(event, **keys)

    def warning(self, event: str, **keys: object) -> None:
        """Something that people should look at when it repeats."""
        with self._failures.harmless("a log line"):
            self._log.warning(event, **keys)

    def error(self, event: str, **keys: object) -> None:
        """Something that failed."""
        with self._failures.harmless("a log line"):
            self._log.error(event, **keys)
