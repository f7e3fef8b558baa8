"""How long a runtime waits for the answers of a plugin: a relay on the way between the two measures it.

The time of a create through the runtime says little about a plugin: it varies by more than a plugin adds.
"""

import selectors
import socket
import threading
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Self

from criproxy.nri import api_pb2 as nri
from criproxy.nri import ttrpc_pb2 as ttrpc
from criproxy.nri.frames import PLUGIN, Frames, Kind

_READ_BYTES = 1 << 18
_OF_LIFE = ("CREATE_CONTAINER", "POST_CREATE_CONTAINER", "START_CONTAINER", "POST_START_CONTAINER")
"""The events of the create and the start of one container."""


class Answers:
    """Listens at *path* for one plugin, connects it with the runtime's socket *to*, and measures."""

    def __init__(self, path: Path, to: Path) -> None:
        self.path = path
        self._to = to
        self._took_ns = defaultdict[str, list[int]](list)
        """By event."""
        self._asked = dict[int, tuple[str, int]]()
        """By stream: what the runtime asks about, and when it did."""
        self._listener = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._relay, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def median_ms(self, event: str) -> float:
        """The median answer to an *event*."""
        return median(self._took_ns[event]) / 1e6

    @property
    def of_life_ms(self) -> dict[str, float]:
        """The median answers of a create and a start, by event."""
        return {event: self.median_ms(event) for event in _OF_LIFE}

    def _relay(self) -> None:
        plugin, _ = self._listener.accept()
        with plugin, socket.socket(socket.AF_UNIX) as runtime, selectors.DefaultSelector() as ready:
            runtime.connect(str(self._to))
            from_runtime, from_plugin = Frames(), Frames()
            ready.register(plugin, selectors.EVENT_READ, (runtime, from_plugin))
            ready.register(runtime, selectors.EVENT_READ, (plugin, from_runtime))
            while True:
                for key, _ in ready.select():
                    to, frames = key.data
                    data = key.fileobj.recv(_READ_BYTES)  # type: ignore[union-attr]  # a socket
                    if not data:
                        return
                    now_ns = time.perf_counter_ns()  # before it is sent: the other side may go on at once
                    to.sendall(data)
                    self._look(frames, data, now_ns)

    def _look(self, frames: Frames, data: bytes, now_ns: int) -> None:
        for frame in frames.feed(data):
            if frame.connection != PLUGIN:
                continue
            if frame.kind == Kind.REQUEST:
                self._asked[frame.stream] = _event(ttrpc.Request.FromString(frame.payload)), now_ns
            elif frame.stream in self._asked:
                event, asked_ns = self._asked.pop(frame.stream)
                self._took_ns[event].append(now_ns - asked_ns)


def _event(request: ttrpc.Request) -> str:
    if request.method == "StateChange":
        return nri.Event.Name(nri.StateChangeEvent.FromString(request.payload).event)
    return "CREATE_CONTAINER" if request.method == "CreateContainer" else request.method
