"""``criproxy record``: hands out what this node is asked, from the event loop to the command that fetches it.

The daemon writes no file for it: lines wait in memory, within a bound, until the command has taken them.
"""

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from secrets import token_hex
from typing import Any

from criproxy import __version__
from criproxy.control.controller import Controller
from criproxy.cri.redact import HIDDEN, looks_secret
from criproxy.engine.decision import Decision
from criproxy.engine.events import Event, PodCreated, TopologyChanged
from criproxy.engine.trace import Header, Traced, asked, header_line, line, population
from criproxy.errors import CriproxyError, Refused, UsageError
from criproxy.model.node import Node
from criproxy.model.notices import timestamp

BUFFER_BYTES = 8 << 20
"""Of lines that were not fetched yet; beyond it a recording ends."""
ANSWER_LINES = 250
"""In one answer of the control socket, which is put together on the event loop."""
PATIENCE_S = 60.0
"""A command that has not fetched lines for so long has gone."""
MAX_RECORDINGS = 4
WAIT_S = 1.0
"""How long an answer waits for the first line."""


@dataclass(slots=True)
class Recording:
    """One trace in the making."""

    begun_s: float
    fetched_s: float
    lines: deque[str] = field(default_factory=deque)
    first: int = 0
    """The number of the first of `lines`; those before it were taken."""
    size_bytes: int = 0
    ended: str = ""
    """Why there will be no more lines; empty while there will."""
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, text: str) -> None:
        """Keep a line, unless too much waits already."""
        if self.ended:
            return
        if self.size_bytes + len(text) > BUFFER_BYTES:
            self.ended = f"more than {BUFFER_BYTES >> 20} MiB waited to be fetched"
        else:
            self.lines.append(text)
            self.size_bytes += len(text)
        self.more.set()

    def begin(self, texts: list[str]) -> None:
        """Put the first lines before those that were added meanwhile."""
        self.lines.extendleft(reversed(texts))
        self.size_bytes += sum(map(len, texts))

    def take(self, count: int) -> None:
        """Forget the lines before number *count*: they have arrived."""
        while self.lines and self.first < count:
            self.size_bytes -= len(self.lines.popleft())
            self.first += 1


class Recorder:
    """The recordings of one daemon.

    Args:
        controller: whose events are recorded.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._recordings: dict[str, Recording] = {}
        self._topology = controller.node.topology
        """That the recordings have."""

    async def command(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``criproxy record``: without arguments begin; with ``recording`` and ``taken`` go on; ``end`` ends it.

        Raises:
            UsageError: an argument is not what it should be.
            CriproxyError: there is nothing to record, or there are too many recordings.
        """
        self._drop_forgotten()
        if "recording" not in arguments:
            return self._answer(*await self._begin())
        name, taken = arguments["recording"], arguments.get("taken", 0)
        recording = self._recordings.get(name) if isinstance(name, str) else None
        if recording is None or type(taken) is not int:
            raise UsageError(f"there is no recording {name!r:.40} (any more): begin another one")
        recording.fetched_s = time.monotonic()
        recording.take(taken)
        if arguments.get("end"):
            self._end(str(name))
        elif not recording.lines and not recording.ended:
            recording.more.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await recording.more.wait()
        return self._answer(str(name), recording)

    async def _begin(self) -> tuple[str, Recording]:
        controller = self._controller
        if controller.context.settings.policy_name == "none":
            raise CriproxyError("there is nothing to record: with the policy none, this daemon sees no container")
        if len(self._recordings) >= MAX_RECORDINGS:
            raise CriproxyError(f"{MAX_RECORDINGS} recordings are under way already: end one of them")
        now_s, node = time.monotonic(), controller.context.state.listen(self._record_event)
        if not self._recordings:
            self._topology = node.topology
        name, recording = token_hex(8), Recording(now_s, now_s)
        self._recordings[name] = recording
        header = Header(node.topology, controller.context.settings.policy_name, timestamp(time.time()), __version__)
        recording.begin(await asyncio.to_thread(_first_lines, header, node))
        return name, recording

    def _end(self, name: str) -> None:
        self._recordings.pop(name).ended = "it was ended"
        if not self._recordings:
            self._controller.context.state.listen(None)

    def _drop_forgotten(self) -> None:
        limit_s = time.monotonic() - PATIENCE_S
        for name in [name for name, recording in self._recordings.items() if recording.fetched_s < limit_s]:
            self._end(name)

    def _record_event(self, event: Event, result: Decision | Exception) -> None:
        """Add an event and what the policy made of it to every recording; what failed otherwise did not happen."""
        if isinstance(result, Exception) and not isinstance(result, Refused):
            return
        if isinstance(event, TopologyChanged) and event.topology == self._topology:
            return  # it was only read again
        self._topology = event.topology if isinstance(event, TopologyChanged) else self._topology
        self._drop_forgotten()
        refused = str(result) if isinstance(result, Refused) else ""
        for one in asked(event):
            for recording in self._recordings.values():
                at_s = time.monotonic() - recording.begun_s
                recording.add(line(Traced(at_s, _without_secrets(one), refused)))

    def _answer(self, name: str, recording: Recording) -> dict[str, Any]:
        lines = list(islice(recording.lines, ANSWER_LINES))
        ended = "" if recording.lines else recording.ended
        return {"recording": name, "first": recording.first, "lines": lines, "ended": ended}


def _first_lines(header: Header, node: Node) -> list[str]:
    """The header and what runs already; a node with a thousand containers takes a tenth of a second."""
    events = (line(Traced(0.0, _without_secrets(event))) for event in population(node))
    return [header_line(header), *events]


def _without_secrets(event: Event) -> Event:
    """*event* without the values of labels and annotations that look secret."""
    if not isinstance(event, PodCreated):
        return event
    pod = event.pod
    return PodCreated(replace(pod, labels=_hidden(pod.labels), annotations=_hidden(pod.annotations)))


def _hidden(values: Mapping[str, str]) -> dict[str, str]:
    return {key: HIDDEN if looks_secret(key) else value for key, value in values.items()}
