"""Asks the daemon on behalf of the watcher, in a thread and within two seconds, and says once why it gets no answer.

Several commands are asked beside each other, and what one of them is answered does not concern the others.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from criproxy.observe.asking import DaemonRefuses, NoDaemon, ask
from criproxy.observe.logger import Log

ASK_S = 2.0
"""How long the daemon may take for one answer."""
FORGET_S = 60.0
"""A refusal that has not been repeated for so long is news again."""
MOST_REFUSALS = 256
"""Of which it is remembered that the log has them: their reasons name containers."""


@dataclass(slots=True, repr=False)
class Daemon:
    """The daemon on *socket*.

    Args:
        socket: its control socket.
        log: is told once of each reason why there is no answer.
        clock: a monotonic one.
    """

    socket: str
    log: Log
    clock: Callable[[], float] = time.monotonic
    _unanswered: dict[str, str] = field(default_factory=dict)
    """By command, why there is no answer, as the log has it."""
    _refusals: dict[tuple[str, str], float] = field(default_factory=dict)
    """By command and reason when it was refused last, the oldest first."""

    async def ask(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """What it answers.

        Raises:
            NoDaemon: nothing, in time.
            DaemonRefuses: that it does not do it.
        """
        try:
            answer = await asyncio.to_thread(partial(ask, self.socket, command, arguments, ASK_S))
        except NoDaemon as error:
            self._note_silence(command, str(error))
            raise
        except DaemonRefuses as error:
            self._unanswered.pop(command, None)
            self._note_refusal(command, str(error))
            raise
        self._unanswered.pop(command, None)
        return answer

    def _note_silence(self, command: str, reason: str) -> None:
        self._refusals.clear()  # whoever answers next may be another one
        if self._unanswered.get(command) != reason:
            self._unanswered[command] = reason
            self.log.warning("the quota watcher gets no answer from the daemon", command=command, reason=reason)

    def _note_refusal(self, command: str, reason: str) -> None:
        now_s = self.clock()
        last_s = self._refusals.pop((command, reason), None)
        if len(self._refusals) >= MOST_REFUSALS:
            del self._refusals[next(iter(self._refusals))]
        self._refusals[command, reason] = now_s
        if last_s is None or now_s - last_s > FORGET_S:
            self.log.warning("the daemon refuses a request of the quota watcher", command=command, reason=reason)
