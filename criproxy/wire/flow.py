"""Flow control towards one peer: the ledger of the connection window, and what has to wait for it.

A proxy that changes the length of messages makes the two ends disagree about windows. `Ledger` books what the
sender believes and what the receiver allows; `Outflow` writes what fits and keeps the rest in the right order.
Both are used twice for each connection, once per direction. Windows are bytes of DATA payload (RFC 9113, 5.2).
"""

from collections import deque
from dataclasses import dataclass, field

from criproxy.errors import WireError
from criproxy.wire import frames

MAX_QUEUED_BYTES = 192 << 20
"""What may wait for windows in one direction of one connection before the connection is given up."""


class Ledger:
    """One window of one direction, as the sender and as the receiver of DATA see it.

    At every moment ``sender + in_flight == receiver + debt``; at rest nothing is in flight.
    """

    __slots__ = ("debt", "in_flight", "receiver", "sender")

    def __init__(self, window: int = frames.DEFAULT_WINDOW) -> None:
        self.sender = window
        """What the sender of DATA believes it may still send."""
        self.receiver = window
        """What the receiver of DATA still takes from us."""
        self.debt = 0
        """What the sender was promised beyond the receiver's window: taken off the receiver's next increments."""
        self.in_flight = 0
        """Received from the sender, and neither sent on nor given back."""

    def passed(self, size: int) -> None:
        """DATA went through unchanged."""
        self.sender -= size
        self.receiver -= size

    def received(self, size: int) -> None:
        """DATA came in and stays here for now."""
        self.sender -= size
        self.in_flight += size

    def forwarded(self, size: int) -> None:
        """DATA that was in flight went out."""
        self.in_flight -= size
        self.receiver -= size

    def replaced(self, old: int, new: int) -> int:
        """*old* bytes in flight became *new* bytes. Returns what to give back to the sender at once."""
        self.in_flight += new - old
        if new >= old:
            self.debt += new - old
            return 0
        return self._credit(old - new)

    def advance(self, size: int) -> int:
        """Let the sender send *size* bytes more than the receiver has room for. Returns *size*."""
        self.debt += size
        self.sender += size
        return size

    def granted(self, increment: int) -> int:
        """The receiver gave window. Returns what of it to pass on to the sender (0: nothing)."""
        self.receiver += increment
        if self.debt:
            return self._credit(increment)
        self.sender += increment
        return increment

    def _credit(self, size: int) -> int:
        paid = min(self.debt, size)
        self.debt -= paid
        self.sender += size - paid
        return size - paid


@dataclass(slots=True)
class _Waiting:
    """One thing that waits on a stream: DATA payload, a header block, or a frame that must not overtake them."""

    raw: bytes
    is_data: bool = False
    is_block: bool = False
    end: bool = False
    sent: int = 0
    """Bytes of *raw* that are out already (DATA only)."""

    @property
    def size(self) -> int:
        """Bytes that still wait."""
        return len(self.raw) - self.sent


@dataclass(slots=True, eq=False)
class Outflow:
    """Everything written towards one peer, in an order that HTTP/2 and HPACK allow.

    What fits is appended to `chunks` at once. Otherwise DATA waits per stream, and header blocks, which must
    leave in arrival order, wait behind it; all other frames pass.
    """

    ledger: Ledger
    chunks: list[bytes] = field(default_factory=list)
    initial_window: int = frames.DEFAULT_WINDOW
    max_frame: int = frames.DEFAULT_MAX_FRAME
    deltas: dict[int, int] = field(default_factory=dict)
    """Open stream → its window at the peer, less the initial size (which changes in mid-connection)."""
    queues: dict[int, deque[_Waiting]] = field(default_factory=dict)
    """Stream → what waits on it; empty almost always, and then frames may be written without asking."""
    queued_bytes: int = 0
    _blocks: deque[int] = field(default_factory=deque)
    _closing: set[int] = field(default_factory=set)

    def take(self) -> bytes:
        """What is to be written by now, as one piece; empty if nothing is."""
        chunks = self.chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        return data

    def open(self, stream: int) -> None:
        """A new stream: its window at the peer is the initial one."""
        self.deltas[stream] = 0

    def close(self, stream: int) -> None:
        """Nothing more will be sent on *stream* than what waits now."""
        if stream in self.queues:
            self._closing.add(stream)
        else:
            self.deltas.pop(stream, None)

    def window(self, stream: int) -> int:
        """Bytes of DATA that may go out on *stream* now; negative after the peer shrank its windows."""
        return min(self.ledger.receiver, self.initial_window + self.deltas.get(stream, 0))

    def apply(self, settings: dict[int, int]) -> None:
        """The sizes of a SETTINGS frame of the peer hold from now on; windows may become negative, or grow."""
        self.initial_window = settings.get(frames.SETTINGS_INITIAL_WINDOW_SIZE, self.initial_window)
        self.max_frame = settings.get(frames.SETTINGS_MAX_FRAME_SIZE, self.max_frame)
        self.flush()

    def fits(self, stream: int, size: int) -> bool:
        """Whether DATA of *size* bytes may go out on *stream* at once."""
        return stream not in self.queues and (not size or size <= self.window(stream))

    def send_data(self, stream: int, payload: bytes, end: bool) -> None:
        """Send *payload*, which is in flight in the ledger, as far as it fits; the rest waits."""
        size = len(payload)
        if 0 < size <= self.max_frame and self.fits(stream, size):  # nearly always
            self.chunks.append(frames.frame(frames.DATA, frames.END_STREAM if end else 0, stream, payload))
            self.ledger.forwarded(size)
            if stream in self.deltas:
                self.deltas[stream] -= size
            return
        self._enqueue(stream, _Waiting(payload, is_data=True, end=end))
        self.flush_stream(stream)

    def send_block(self, stream: int, raw: bytes) -> None:
        """Send a header block (HEADERS and its CONTINUATION frames), after all earlier ones."""
        if not self._blocks and stream not in self.queues:
            self.chunks.append(raw)
            return
        self._blocks.append(stream)
        self._enqueue(stream, _Waiting(raw, is_block=True))

    def send_frame(self, stream: int, raw: bytes) -> None:
        """Send a frame that must not overtake what waits on its own stream."""
        if stream in self.queues:
            self._enqueue(stream, _Waiting(raw))
        else:
            self.chunks.append(raw)

    def send_window_update(self, stream: int, raw: bytes) -> None:
        """Send a WINDOW_UPDATE frame: it overtakes DATA that waits, but not the headers that open the stream."""
        if any(item.is_block for item in self.queues.get(stream, ())):
            self._enqueue(stream, _Waiting(raw))
        else:
            self.chunks.append(raw)

    def hold_back(self, stream: int) -> None:
        """Keep everything of *stream* that comes from now on, until `put_first` says what goes before it."""
        self._enqueue(stream, _Waiting(b""))

    def put_first(self, stream: int, payload: bytes) -> None:
        """End `hold_back`: *payload* (in flight; may be empty) goes out first."""
        queue = self.queues[stream]  # before the place that was kept there may still be the stream's first headers
        place = next(at for at, item in enumerate(queue) if not (item.raw or item.is_data))
        queue[place] = _Waiting(payload, is_data=True)
        self.queued_bytes += len(payload)
        self.flush_stream(stream)

    def drop_data(self, stream: int) -> tuple[int, bool]:
        """Forget all that waits on *stream* but its header blocks, which HPACK needs.

        Returns:
            How many bytes of DATA were dropped (still in flight in the ledger), and whether any DATA waited at all.
        """
        queue = self.queues.pop(stream, None)
        if queue is None:
            return 0, False
        self.queued_bytes -= sum(item.size for item in queue if not item.is_block)
        blocks = deque(item for item in queue if item.is_block)
        if blocks:
            self.queues[stream] = blocks
        else:
            self._forget(stream)
        self.flush_stream(stream)
        dropped = [item.size for item in queue if item.is_data]
        return sum(dropped), bool(dropped)

    def flush_stream(self, stream: int) -> None:
        """Write what may go out by now because something changed on *stream* (0: the connection's window)."""
        self._flush_stream(stream)
        if stream == 0 or self._flush_blocks():
            self.flush()

    def flush(self) -> None:
        """Write what may go out by now, on every stream."""
        moved = bool(self.queues)
        while moved:
            moved = self._flush_blocks()
            for stream in list(self.queues):
                moved |= self._flush_stream(stream)

    def _enqueue(self, stream: int, item: _Waiting) -> None:
        self.queues.setdefault(stream, deque()).append(item)
        self.queued_bytes += len(item.raw)
        if self.queued_bytes > MAX_QUEUED_BYTES:
            raise WireError(f"more than {MAX_QUEUED_BYTES} bytes wait for the peer's window", frames.ENHANCE_YOUR_CALM)

    def _flush_blocks(self) -> bool:
        moved = False
        while self._blocks and self.queues[self._blocks[0]][0].is_block:
            self._write_first(self._blocks.popleft())
            moved = True
        return moved

    def _flush_stream(self, stream: int) -> bool:
        """Write the DATA and plain frames at the head of one stream's queue."""
        moved = False
        while (queue := self.queues.get(stream)) and not queue[0].is_block:
            first = queue[0]
            if first.is_data:
                if not self._write_data(stream, first):
                    return moved
                self._drop_first(stream, queue)
            elif first.raw:
                self._write_first(stream)
            else:  # held back
                return moved
            moved = True
        return moved

    def _write_first(self, stream: int) -> None:
        queue = self.queues[stream]
        self.chunks.append(queue[0].raw)
        self.queued_bytes -= len(queue[0].raw)
        self._drop_first(stream, queue)

    def _drop_first(self, stream: int, queue: deque[_Waiting]) -> None:
        queue.popleft()
        if not queue:
            del self.queues[stream]
            self._forget(stream)

    def _forget(self, stream: int) -> None:
        if stream in self._closing:
            self._closing.remove(stream)
            self.deltas.pop(stream, None)

    def _write_data(self, stream: int, item: _Waiting) -> bool:
        """Send as much of *item* as the windows allow; True when all of it is out."""
        room = max(0, self.window(stream))
        part = item.raw[item.sent : item.sent + room]
        last = item.size == len(part)
        if part or (last and item.end):
            self.chunks.extend(frames.data_frames(stream, part, item.end and last, self.max_frame))
            self.ledger.forwarded(len(part))
            self.queued_bytes -= len(part)
            item.sent += len(part)
            if stream in self.deltas:
                self.deltas[stream] -= len(part)
        return last
