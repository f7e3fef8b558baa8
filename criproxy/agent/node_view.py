"""What the daemon knows about the node, followed by a long poll; and commands for the daemon.

What was known last stays when the daemon is gone, hangs, or is restarted.
"""

import asyncio
from collections.abc import Mapping
from contextlib import closing
from time import monotonic
from typing import Any

from criproxy import __version__
from criproxy.agent.changes import Changes
from criproxy.agent.troubles import Troubles
from criproxy.errors import CriproxyError
from criproxy.process.control_client import ControlClient, DaemonRefuses, NoDaemon
from criproxy.process.tasks import Backoff

COMMAND = "agent"
WAIT_S = 15.0
"""How long the daemon may wait for a change: what no call or event tells it of, such as a kubelet that no longer calls,
it finds out when this time is over."""
PATIENCE_S = 10.0
"""How long an answer may take beyond that."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
"""Pauses before a daemon that does not answer is asked again."""
LONGEST_ANSWER_BYTES = 64 << 20
"""More than the answer about the largest node has."""
MOST_ASKING = 8
"""Commands that are sent at the same time; others wait."""


class NodeView(Changes):
    """Follows the node.

    Args:
        control_socket: the daemon's socket for the agent.
        node_name: the name of the machine's Node object.
        troubles: told to the daemon with each poll, and soon after a change.
    """

    def __init__(self, control_socket: str, node_name: str, troubles: Troubles) -> None:
        super().__init__()
        self.node_name = node_name
        self.last: Mapping[str, Any] | None = None
        """The last answer, see docs/agent.md; None before the first one. It stays when the daemon is gone."""
        self.problem = "the daemon has not answered yet"
        """Why the daemon does not answer now; empty if it does."""
        self._socket, self._troubles = control_socket, troubles
        self._asking = asyncio.Semaphore(MOST_ASKING)
        self._answered_s = monotonic()

    @property
    def silent_s(self) -> float:
        """How long ago the daemon has answered last, or the agent started; 0 while it answers."""
        return monotonic() - self._answered_s if self.problem else 0.0

    async def run(self) -> None:
        """Follow the node, for ever."""
        pauses = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        with closing(ControlClient(self._socket, WAIT_S + PATIENCE_S, LONGEST_ANSWER_BYTES)) as poll:
            while True:
                try:
                    await self._poll(poll)
                    pauses.reset()
                except CriproxyError as error:
                    self._failed(error)
                    await asyncio.sleep(pauses.pause_s())

    async def ask(self, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = 60.0) -> Any:  # noqa: ANN401 - JSON
        """Return the daemon's answer to another *command*.

        Raises:
            NoDaemon: there is no answer in time; the command may have been executed.
            DaemonRefuses: the daemon's sentence, for example why it refuses a configuration.
        """
        with closing(ControlClient(self._socket, timeout_s, LONGEST_ANSWER_BYTES)) as client:
            async with self._asking:
                return await client.ask(command, arguments or {})

    async def _poll(self, client: ControlClient) -> None:
        """Ask for the next change; a new trouble ends the wait, since the daemon is to know it."""
        after = self.last["revision"] if self.last and not self.problem else 0
        told = self._troubles.version
        report = {
            "version": __version__,
            "problems": self._troubles.sentences(wrong=False),
            "wrong": self._troubles.sentences(wrong=True),
        }
        arguments = {"after": after, "wait_s": WAIT_S, "report": report}
        polling = asyncio.ensure_future(client.ask(COMMAND, arguments))
        news = asyncio.ensure_future(self._troubles.changed(told))
        try:
            await asyncio.wait({polling, news}, return_when=asyncio.FIRST_COMPLETED)
            if polling.done():
                self._use(polling.result())
        finally:
            for each in (polling, news):
                each.cancel()
            await asyncio.wait({polling, news})

    def _use(self, answer: object) -> None:
        if not isinstance(answer, dict) or not isinstance(answer.get("revision"), int):
            raise NoDaemon(f"the process listening on {self._socket} is not a criproxy daemon: it has no revision")
        same = self.last is not None and self.last["revision"] == answer["revision"] and not self.problem
        self.last, self.problem = answer, ""
        self._answered_s = monotonic()
        self._troubles.set("daemon", "")
        if not same:
            self.notify()

    def _failed(self, error: CriproxyError) -> None:
        problem = str(error)
        if isinstance(error, DaemonRefuses) and error.unknown:
            problem = f"the daemon on {self._socket} is older than the agent, and does not know it: upgrade criproxy"
        if problem != self.problem:
            self.problem = problem
            self._troubles.set("daemon", problem)
            self.notify()
