"""One run of `criproxy agent`: builds the parts, runs them beside each other, and stops them."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack

from criproxy import __version__
from criproxy.agent.node_view import NodeView
from criproxy.agent.options import AgentOptions
from criproxy.agent.troubles import Troubles
from criproxy.process.failures import Failures
from criproxy.process.heartbeat import Heartbeat
from criproxy.process.log import LineWriter, structlog
from criproxy.process.systemd import Notifier
from criproxy.process.tasks import Tasks, end_process_soon

log = structlog.get_logger("criproxy.agent")


def run(options: AgentOptions, log_writer: LineWriter) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        CriproxyError: it cannot start: an option, or a file that one names, is wrong.
    """
    with asyncio.Runner() as runner:
        runner.run(Agent(options, log_writer).serve())


class Agent:
    """One run of the program; each part runs for ever, and waits for the daemon and the API server by itself."""

    def __init__(self, options: AgentOptions, log_writer: LineWriter) -> None:
        self._options = options
        self._log_writer = log_writer
        self._notifier = Notifier(os.environ)
        self._heartbeat = Heartbeat(self._on_heartbeat, self._notifier.watchdog_interval_s, self._heartbeat_failed)
        self._failures = Failures(log=log)
        self._tasks = Tasks(log, self._failures)
        self._stop = asyncio.Event()
        self._last_status = ""
        self.troubles = Troubles(log)
        self.node_view = NodeView(options.control_socket, options.node_name, self.troubles)

    async def serve(self) -> None:
        """Start all parts, wait for the signal, and stop the parts."""
        self._handle_signals()
        async with AsyncExitStack() as stack:
            self._heartbeat.start()
            stack.callback(self._heartbeat.stop)
            stack.push_async_callback(self._tasks.stop)
            self._tasks.watch_callbacks()
            self._tasks.forever("follow the daemon", self.node_view.run)
            self._notifier.ready(self._status_text())
            log.info("serving", version=__version__, node=self._options.node_name, pid=os.getpid())
            await self._stop.wait()
            self._notifier.stopping()
        log.info("stopped")

    def _status_text(self) -> str:
        """Return one line for systemd."""
        found = [*self.troubles.sentences(wrong=True), *self.troubles.sentences(wrong=False)]
        return "; ".join(found) or f"connects the node {self._options.node_name}"

    def _on_heartbeat(self) -> None:
        self._notifier.alive()
        if (status := self._status_text()) != self._last_status:
            self._last_status = status
            self._notifier.status(status)
        self._log_writer.flush()

    def _heartbeat_failed(self, error: Exception) -> None:
        if self._failures.add("watcher", f"a heartbeat failed: {error!r}"):
            log.error("a heartbeat failed", exc_info=error)

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop_signal, number)

    def _on_stop_signal(self, number: signal.Signals) -> None:
        log.info("stopping", signal=number.name)
        self._stop.set()
        end_process_soon()
