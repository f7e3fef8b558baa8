"""``criproxy record``: passes the events of this node from the event loop to the command that fetches them.

The daemon writes no file: lines wait in memory, up to a limit, until the command has fetched them.
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
from criproxy.api.live import LiveNode
from criproxy.cri.logged_calls import HIDDEN, looks_secret
from criproxy.errors import CriproxyError, Refused, UsageError
from criproxy.model.node import Node
from criproxy.model.text.notices import timestamp
from criproxy.node.controller import Controller
from criproxy.placement.decision import Decision
from criproxy.placement.events import Event, PodCreated, TopologyChanged
from criproxy.placement.records.trace import Header, Traced, asked, header_line, line, population
from criproxy.process.control_socket import Command

BUFFER_BYTES = 8 << 20
"""The size of lines that were not fetched yet at which a recording ends."""
ANSWER_LINES = 250
"""Lines in one answer of the control socket, which is assembled on the event loop."""
PATIENCE_S = 60.0
"""When a command that does not fetch lines counts as gone."""
MAX_RECORDINGS = 4
WAIT_S = 1.0
"""How long an answer waits for the first line."""


@dataclass(slots=True)
class Recording:
    """A recording in progress."""

    begun_s: float
    fetched_s: float
    lines: deque[str] = field(default_factory=deque)
    first: int = 0
    """The number of the first of `lines`; those before it were taken."""
    size_bytes: int = 0
    ended: str = ""
    """Why the recording has ended; empty while it continues."""
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, text: str) -> None:
        """Append a line; end the recording if the buffer is full."""
        if self.ended:
            return
        if self.size_bytes + len(text) > BUFFER_BYTES:
            self.ended = f"more than {BUFFER_BYTES >> 20} MiB of events were waiting to be fetched"
        else:
            self.lines.append(text)
            self.size_bytes += len(text)
        self.more.set()

    def begin(self, texts: list[str]) -> None:
        """Insert the first lines before those that were added meanwhile."""
        self.lines.extendleft(reversed(texts))
        self.size_bytes += sum(map(len, texts))

    def take(self, count: int) -> None:
        """Drop the lines before number *count*, which the client has received."""
        while self.lines and self.first < count:
            self.size_bytes -= len(self.lines.popleft())
            self.first += 1


def commands(live: LiveNode) -> Mapping[str, Command]:
    """Return the handler of the only command, for the control socket."""
    return {"record": Recorder(live.controller).command}


class Recorder:
    """The recordings of one daemon.

    Args:
        controller: the source of the events.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._recordings: dict[str, Recording] = {}
        self._topology = controller.node.topology
        """The last topology in the recordings."""

    async def command(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``criproxy record``: begin without arguments, continue with ``recording`` and ``taken``, or ``end``.

        Raises:
            UsageError: an argument is invalid.
            CriproxyError: there is nothing to record, or there are too many recordings.
        """
        self._drop_forgotten()
        if "recording" not in arguments:
            return self._answer(*await self._begin())
        name, taken = arguments["recording"], arguments.get("taken", 0)
        recording = self._recordings.get(name) if isinstance(name, str) else None
        if recording is None or type(taken) is not int:
            raise UsageError(f"there is no recording {name!r:.40} (any more): start another one")
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
            raise CriproxyError("there is nothing to record: with the policy none, this daemon sees no containers")
        if len(self._recordings) >= MAX_RECORDINGS:
            raise CriproxyError(f"{MAX_RECORDINGS} recordings are already in progress: stop one of them")
        now_s, node = time.monotonic(), controller.context.state.set_listener(self._record_event)
        if not self._recordings:
            self._topology = node.topology
        name, recording = token_hex(8), Recording(now_s, now_s)
        self._recordings[name] = recording
        header = Header(node.topology, controller.context.settings.policy_name, timestamp(time.time()), __version__)
        recording.begin(await asyncio.to_thread(_first_lines, header, node))
        return name, recording

    def _end(self, name: str) -> None:
        self._recordings.pop(name).ended = "it was stopped"
        if not self._recordings:
            self._controller.context.state.set_listener(None)

    def _drop_forgotten(self) -> None:
        limit_s = time.monotonic() - PATIENCE_S
        for name in [name for name, recording in self._recordings.items() if recording.fetched_s < limit_s]:
            self._end(name)

    def _record_event(self, event: Event, result: Decision | Exception) -> None:
        """Add an event and the policy's refusal, if any, to every recording; skip events that failed otherwise."""
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
    """Return the header and the running containers; this takes 0.1 s for a thousand containers."""
    events = (line(Traced(0.0, _without_secrets(event))) for event in population(node))
    return [header_line(header), *events]


def _without_secrets(event: Event) -> Event:
    """Return *event* without the values of labels and annotations that look secret."""
    if not isinstance(event, PodCreated):
        return event
    pod = event.pod
    return PodCreated(replace(pod, labels=_hidden(pod.labels), annotations=_hidden(pod.annotations)))


def _hidden(values: Mapping[str, str]) -> dict[str, str]:
    return {key: HIDDEN if looks_secret(key) else value for key, value in values.items()}
