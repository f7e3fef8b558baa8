"""Mistakes to plant in the data plane, to see that the fuzzer finds them. Only tests use them."""

from collections.abc import Callable, Iterator
from typing import Any

from criproxy.wire import flow, frames, requests, splice, state

_kept: list[object] = []


def _window_kept() -> None:
    """The window of what the runtime never gets is not returned to the kubelet."""
    give = state.Connection.give_client

    def give_client(self: state.Connection, size: int, stream: int = 0) -> None:
        give(self, size if stream else 0, stream)

    _replace(state.Connection, "give_client", give_client)


def _block_dropped() -> None:
    """Header blocks of the runtime are dropped together with the DATA that waits before them."""
    drop = flow.Outflow.drop_data

    def drop_data(self: flow.Outflow, stream: int) -> tuple[int, bool]:
        for item in self.queues.get(stream, ()):
            item.is_block = False
        while stream in self._blocks:
            self._blocks.remove(stream)
        return drop(self, stream)

    _replace(flow.Outflow, "drop_data", drop_data)


def _end_too_early() -> None:
    """END_STREAM stands on the first of several DATA frames."""

    def data_frames(stream: int, payload: bytes, end: bool, max_frame: int) -> Iterator[bytes]:
        for at in range(0, len(payload) or 1, max_frame):
            yield frames.frame(frames.DATA, end and at == 0, stream, payload[at : at + max_frame])

    _replace(frames, "data_frames", data_frames)


def _continuation_unheard() -> None:
    """The HPACK listener gets no CONTINUATION."""

    def header_block(raw: bytes) -> bytes:
        return frames.header_fragment(raw[4], raw[9 : 9 + int.from_bytes(raw[:3], "big")])

    _replace(frames, "header_block", header_block)


def _overtaken() -> None:
    """A later header block overtakes an edited message that waits."""

    def send_block(self: flow.Outflow, stream: int, raw: bytes) -> None:
        self.chunks.append(raw)

    _replace(flow.Outflow, "send_block", send_block)


def _never_freed() -> None:
    """Something keeps every connection alive."""
    begin = splice.Splice.__init__

    def init(self: splice.Splice, *args: Any) -> None:  # noqa: ANN401 - whatever a splice takes
        begin(self, *args)
        _kept.append(self)

    _replace(splice.Splice, "__init__", init)


def _endless() -> None:
    """A PRIORITY frame is looked at for ever."""
    begin = requests.Requests.__init__

    def init(self: requests.Requests, connection: state.Connection) -> None:
        begin(self, connection)
        self.handlers[frames.PRIORITY] = _spin

    _replace(requests.Requests, "__init__", init)


def _spin(stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
    while True:
        pass


def _replace(owner: object, name: str, value: object) -> None:
    setattr(owner, name, value)


PLANTS: dict[str, Callable[[], None]] = {
    "window-kept": _window_kept,
    "block-dropped": _block_dropped,
    "end-too-early": _end_too_early,
    "continuation-unheard": _continuation_unheard,
    "overtaken": _overtaken,
    "never-freed": _never_freed,
    "endless": _endless,
}
