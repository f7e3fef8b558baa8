"""What the programs beside the daemon have in common: heartbeat, messages to systemd, signals, and supervised tasks."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack

from criproxy import __version__
from criproxy.process.failures import Failures
from criproxy.process.heartbeat import Heartbeat
from criproxy.process.log import LineWriter
from criproxy.process.logger import Log
from criproxy.process.systemd import Notifier
from criproxy.process.tasks import Tasks, end_process_soon


class Program:
    """One run of a program that serves until SIGTERM or SIGINT.

    Args:
        log: the program's.
        log_writer: is flushed with each heartbeat.
        status_text: returns one line for systemd; empty before there is something to say.
    """

    def __init__(self, log: Log, log_writer: LineWriter, status_text: Callable[[], str]) -> None:
        self.notifier = Notifier(os.environ)
        self.heartbeat = Heartbeat(self._beat, self._beat_failed, self.notifier.watchdog_interval_s)
        self.failures = Failures(log=log)
        self.tasks = Tasks(log, self.failures)
        self.stop = asyncio.Event()
        """Set by SIGTERM and SIGINT."""
        self._log, self._log_writer, self._status_text = log, log_writer, status_text
        self._last_status = ""

    def start(self, stack: AsyncExitStack) -> None:
        """Handle the signals, and beat until *stack* is left."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop_signal, number)
        self.heartbeat.start()
        stack.callback(self.heartbeat.stop)

    def ready(self, **keys: object) -> None:
        """Tell systemd and the log that the program serves; *keys* are for the log."""
        self.notifier.ready(self._status_text())
        self._log.info("serving", version=__version__, pid=os.getpid(), **keys)

    def _beat(self) -> None:
        self.notifier.alive()
        if (status := self._status_text()) and status != self._last_status:
            self._last_status = status
            self.notifier.status(status)
        self._log_writer.flush()

    def _beat_failed(self, error: Exception) -> None:
        if self.failures.add("watcher", f"a heartbeat failed: {error!r}"):
            self._log.error("a heartbeat failed", exc_info=error)

    def _on_stop_signal(self, number: signal.Signals) -> None:
        self._log.info("stopping", signal=number.name)
        self.stop.set()
        end_process_soon()
