"""Mistakes that were made in this field, planted one at a time: the checks that guard against each must fail."""

from collections.abc import Callable, Iterator

import pytest

from criproxy.errors import WireError
from criproxy.wire import flow, frames, requests
from criproxy.wire.flow import Outflow
from criproxy.wire.replies import Replies
from criproxy.wire.state import Connection, Stream
from tests.wire import checks
from tests.wire.checks import Check
from tests.wire.rawpeer import Violation

Plant = Callable[[pytest.MonkeyPatch], None]
FAILURES = (AssertionError, Violation, WireError)


def drop_late_headers(patch: pytest.MonkeyPatch) -> None:
    """Swallow the runtime's header blocks on a stream that was refused."""
    right = Replies._on_headers

    def wrong(self: Replies, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        if stream in self.connection.refused:
            self.take(at, end)
        else:
            right(self, stream, flags, buffer, at, end)

    patch.setattr(Replies, "_on_headers", wrong)


def keep_cancelled_window(patch: pytest.MonkeyPatch) -> None:
    """Book the bytes of a cancelled call as returned, and do not return them."""
    right = Connection.drop_hold

    def wrong(self: Connection, stream: Stream) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Connection, "give_client", lambda self, size, stream=0: None)
            right(self, stream)

    patch.setattr(Connection, "drop_hold", wrong)


def end_first_frame(patch: pytest.MonkeyPatch) -> None:
    """Put END_STREAM on the first of the DATA frames of a message."""

    def wrong(stream: int, payload: bytes, end: bool, max_frame: int) -> Iterator[bytes]:
        for at in range(0, len(payload) or 1, max_frame):
            flags = frames.END_STREAM if end and not at else 0
            yield frames.frame(frames.DATA, flags, stream, payload[at : at + max_frame])

    patch.setattr(flow, "data_frames", wrong)


def ignore_continuation(patch: pytest.MonkeyPatch) -> None:
    """Show the listening HPACK decoder only the HEADERS frame of a header block."""

    class Wrong:
        """`frames`, with one function that looks at one frame only."""

        def __getattr__(self, name: str) -> object:
            return getattr(frames, name)

        @staticmethod
        def header_block(raw: bytes) -> bytes:
            """The part of a block in its first frame."""
            return frames.header_fragment(raw[4], raw[9 : 9 + int.from_bytes(raw[:3], "big")])

    patch.setattr(requests, "frames", Wrong())


def let_headers_overtake(patch: pytest.MonkeyPatch) -> None:
    """Write header blocks at once, though an edited message waits for the client's window."""
    patch.setattr(Outflow, "send_block", lambda self, stream, raw: self.chunks.append(raw))


def many_refusals() -> None:
    """As `test_splice_crowds` does, fewer."""
    checks.refusals(200)


def many_cancels() -> None:
    """As `test_splice_crowds` does, fewer."""
    checks.cancels(200)


LIVES = {
    keep_cancelled_window: 9,
    end_first_frame: 17,
    ignore_continuation: 1,
    drop_late_headers: 124,
    let_headers_overtake: 5,
}
"""The first of the random lives of `test_splice_crowds` in which each mistake shows."""


def one_life(seed: int) -> Check:
    """One of them; it is the same each time."""

    def life() -> None:
        checks.random_life(seed)

    return life


GUARDS: list[tuple[Plant, Check]] = [
    (drop_late_headers, many_refusals),
    (keep_cancelled_window, many_cancels),
    (end_first_frame, checks.long_message),
    (ignore_continuation, checks.split_headers),
    (let_headers_overtake, checks.grown_reply),
    *((plant, one_life(seed)) for plant, seed in LIVES.items()),
]


@pytest.mark.parametrize(
    ("plant", "check"), [pytest.param(*guard, id=f"{guard[0].__name__}-{guard[1].__name__}") for guard in GUARDS]
)
def test_planted_mistake_is_caught(plant: Plant, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check fails with the mistake; without it, it passes (see `test_splice_crowds`)."""
    plant(monkeypatch)
    with pytest.raises(FAILURES):
        check()
