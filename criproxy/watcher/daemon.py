"""Asks the daemon on behalf of the watcher, in a thread and within two seconds, and says once why it gets no answer."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from criproxy.observe.asking import DaemonRefuses, NoDaemon, ask
from criproxy.observe.logger import Log

ASK_S = 2.0
"""How long the daemon may take for one answer."""


@dataclass(slots=True, repr=False)
class Daemon:
    """The daemon on *socket*.

    Args:
        socket: its control socket.
        log: is told once of each reason why there is no answer.
    """

    socket: str
    log: Log
    reached: bool = False
    """Whether it has answered the last question."""
    _said: str = ""

    async def ask(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """What it answers.

        Raises:
            NoDaemon: nothing, in time.
            DaemonRefuses: that it does not do it.
        """
        try:
            answer = await asyncio.to_thread(partial(ask, self.socket, command, arguments, ASK_S))
        except NoDaemon as error:
            self.reached = False
            self._say("the watcher of quotas gets no answer from the daemon", command, str(error))
            raise
        except DaemonRefuses as error:
            self.reached = True
            self._say("the daemon refuses a request of the watcher of quotas", command, str(error))
            raise
        self.reached, self._said = True, ""
        return answer

    def _say(self, event: str, command: str, reason: str) -> None:
        if reason != self._said:
            self._said = reason
            self.log.warning(event, command=command, reason=reason)
