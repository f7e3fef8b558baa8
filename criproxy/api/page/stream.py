"""The stream of server-sent events: pages that are open see each change of the node within a second.

Looks at the node are taken only while a page is open, and all pages share them. The number of streams is limited: a
further page takes the place of the oldest one of the client with most pages. A page that does not read its stream loses
it: what is not read waits in memory.

A page gets everything once and then only what has changed, so that a change on a node with 500 containers costs as much
as the containers that it concerns.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from aiohttp import web

MAX_EVENTS = 200
"""So many events a page begins with."""
MOST_STREAMS = 8
"""The largest number of pages that are kept up to date at once."""
MOST_WAITING = 8
"""Messages that may wait for one page."""
SLOW_S = 10.0
"""How long a page may take to read what the kernel does not buffer."""
TICK_S = 5.0
"""A look is taken after this time even if the node has not changed: its notices may have."""
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 0.5
PAUSE_RATIO = 10.0
"""Between these, the pause after a look is so many times longer than the look: looks at a large node are rarer."""
DISPLACED = f"{MOST_STREAMS} other pages have been opened since; come back to this one to see changes again"


@dataclass(frozen=True, slots=True)
class Picture:
    """The node at one moment; all values are encoded JSON."""

    parts: Mapping[str, bytes] = field(default_factory=dict)
    """What is shown, by name: ``status`` (without containers), ``machine``, ``devices`` and so on."""
    rows: Mapping[str, bytes] = field(default_factory=dict)
    """The containers by instance, in the order of `criproxy status`."""
    events: Sequence[bytes] = ()
    """The newest, the oldest first."""
    new_events: Sequence[bytes] = ()
    """Those of *events* that the picture before did not have."""


def picture(
    parts: Mapping[str, Any], rows: Mapping[str, Any], before: Picture | None, new_events: Iterable[Any]
) -> Picture:
    """Encode a look at the node; takes milliseconds on a large node."""
    fresh = [_encoded(event) for event in new_events][-MAX_EVENTS:]
    return Picture(
        {name: _encoded(part) for name, part in parts.items()},
        {life: _encoded(row) for life, row in rows.items()},
        [*(before.events if before else ()), *fresh][-MAX_EVENTS:],
        fresh,
    )


def whole(now: Picture) -> bytes:
    """Everything, as a message of the stream."""
    return _message(now.parts, now.rows, (), now.events, whole=True)


def changes(before: Picture, now: Picture) -> bytes:
    """What a page that shows *before* needs to show *now*, as a message of the stream."""
    parts = {name: part for name, part in now.parts.items() if before.parts.get(name) != part}
    rows = {life: row for life, row in now.rows.items() if before.rows.get(life) != row}
    gone = [life for life in before.rows if life not in now.rows]
    return _message(parts, rows, gone, now.new_events, whole=False)


def _message(
    parts: Mapping[str, bytes], rows: Mapping[str, bytes], gone: Sequence[str], events: Sequence[bytes], *, whole: bool
) -> bytes:
    fields = {
        "whole": _encoded(whole),
        "parts": _object(parts),
        "rows": _object(rows),
        "gone": _encoded(gone),
        "events": b"[%b]" % b",".join(events),
    }
    return b"event: node\ndata: %b\n\n" % _object(fields)


def _object(values: Mapping[str, bytes]) -> bytes:
    def items() -> Iterator[bytes]:
        for name, value in values.items():
            yield b"%b:%b" % (_encoded(name), value)

    return b"{%b}" % b",".join(items())


def _encoded(value: Any) -> bytes:  # noqa: ANN401 - JSON
    """One line: JSON has no line breaks in texts, so that none can end a message of the stream."""
    return json.dumps(value, separators=(",", ":")).encode()


Look = Callable[[Picture | None], Awaitable[Picture]]


@dataclass(slots=True, eq=False, repr=False)
class Stream:
    """One open page."""

    transport: asyncio.Transport | None
    peer: str = ""
    """Whose page it is."""
    messages: "asyncio.Queue[bytes | None]" = field(default_factory=lambda: asyncio.Queue(MOST_WAITING))
    """None ends the stream."""
    begun: bool = False
    """Whether it has got a whole picture."""

    @property
    def is_lost(self) -> bool:
        """Whether its page has been closed."""
        return self.transport is None or self.transport.is_closing()

    def put(self, message: bytes) -> bool:
        """Enqueue *message*; False if its page is too slow, and is cut off."""
        try:
            self.messages.put_nowait(message)
        except asyncio.QueueFull:
            self.cut()
            return False
        return True

    def cut(self) -> None:
        """End it without waiting for what it has not read."""
        if self.transport is not None:
            self.transport.abort()

    def end(self, last: bytes = b"") -> None:
        """End it when it has read what it has got, and the *last* message."""
        with suppress(asyncio.QueueFull):
            if last:
                self.messages.put_nowait(last)
            self.messages.put_nowait(None)
            return
        self.cut()


@dataclass(slots=True, repr=False)
class Streams:
    """Sends what changes to all open pages; `run` is its background task.

    Args:
        look: takes a picture of the node, with the one before.
        changed: returns when the node changes.
    """

    look: Look
    changed: Callable[[], Awaitable[None]]
    dropped: int = 0
    """Pages that were cut off because they did not read."""
    _open: dict[Stream, None] = field(default_factory=dict)
    """The oldest first."""
    _watched: asyncio.Event = field(default_factory=asyncio.Event)
    _now: Picture | None = None
    _taken_s: float = float("-inf")

    async def run(self) -> None:
        """Look at the node and send what has changed, for ever, while pages are open."""
        clock = asyncio.get_running_loop()
        while True:
            await self._watched.wait()
            change = asyncio.ensure_future(self.changed())  # before the look: what happens meanwhile is not in it
            try:
                begun_s = clock.time()
                await self._send()
                took_s = clock.time() - begun_s
                await asyncio.sleep(min(max(SHORTEST_PAUSE_S, PAUSE_RATIO * took_s), LONGEST_PAUSE_S))
                await asyncio.wait({change}, timeout=TICK_S)
            finally:
                change.cancel()

    async def _send(self) -> None:
        before, self._now = self._now, None  # if the look fails, the next one is for everybody
        now = await self.look(before)
        message = await asyncio.to_thread(changes, before, now) if before else b""
        beginning = [stream for stream in self._open if not (before and stream.begun)]
        everything = whole(now) if beginning else b""
        self._now, self._taken_s = now, monotonic()
        for stream in [*self._open]:
            stream.begun = True
            if not stream.put(everything if stream in beginning else message):
                self.dropped += 1
                self._close(stream)

    async def serve(
        self, request: web.Request, headers: Mapping[str, str], allowed: Callable[[], Awaitable[bool]], peer: str
    ) -> web.StreamResponse:
        """Answer *request* with the stream, until the page is closed, is too slow or displaced, or `close` ends it.

        *allowed* is asked before each message whether the page may still see the node. The page is one of *peer*.
        """
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **headers})
        response.force_close()
        stream = Stream(request.transport, peer)
        self._make_room(peer)
        self._open[stream] = None
        try:
            await response.prepare(request)
            self._begin(stream)
            while (message := await stream.messages.get()) is not None and await allowed():
                async with asyncio.timeout(SLOW_S):
                    await response.write(message)
        except TimeoutError:
            stream.cut()
            self.dropped += 1
        except ConnectionError:
            pass
        finally:
            self._close(stream)
        return response

    def _make_room(self, peer: str) -> None:
        """Make room for one more page, of *peer*; streams whose page has been closed do not count, and end."""
        for stream in [each for each in self._open if each.is_lost]:
            self._close(stream)
            stream.end()
        while len(self._open) >= MOST_STREAMS:
            pages = Counter([peer, *(each.peer for each in self._open)])
            oldest = next(each for each in self._open if pages[each.peer] == max(pages.values()))
            self._close(oldest)
            oldest.end(b"event: displaced\ndata: %b\n\n" % json.dumps({"why": DISPLACED}).encode())

    def _begin(self, stream: Stream) -> None:
        """Send what is known at once if it is recent; else `run` has ended its pause, and looks at once."""
        if self._now is not None and monotonic() - self._taken_s < TICK_S and not stream.begun:
            stream.begun = True
            stream.put(whole(self._now))
        self._watched.set()

    def _close(self, stream: Stream) -> None:
        self._open.pop(stream, None)
        if not self._open:
            self._watched.clear()

    def close(self) -> None:
        """End all streams: the server stops."""
        for stream in self._open:
            stream.end()
