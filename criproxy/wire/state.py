"""What both directions of a spliced connection share: open streams, windows, and what the handlers are told.

`Connection` is sans-io: nothing here knows of sockets, tasks or clocks.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic

from criproxy.errors import StatusCode
from criproxy.wire import frames
from criproxy.wire.calls import Call, Outcome, OutcomeKind
from criproxy.wire.flow import Ledger, Outflow
from criproxy.wire.message import MessageReader, status_reply
from criproxy.wire.stats import Entry, Stats

LOW_WINDOW = 16_384
"""Below this many bytes a peer whose message we keep gets more window from us."""
WINDOW_STEP = 262_144
MAX_HELD_BYTES = 128 << 20
"""What may be held on one connection at a time; the call that exceeds it is refused."""
MAX_COPIED_BYTES = 128 << 20
"""What of unfinished watched messages is copied on one connection at a time."""
MAX_KEPT_BYTES = 256 << 20
"""What may be held and copied on all connections together at a time: many connections must not use up the memory."""
MAX_REFUSED_REMEMBERED = 10_000
"""Refused streams whose late frames are still recognised; older ones have long been forgotten by the runtime."""
BUSY_QUEUE_BYTES = 1 << 20
"""With more than this waiting for one peer, the other gets no window in advance: back-pressure reaches it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A held call is complete: *body* is its raw request body (prefix and message)."""

    call: Call
    body: bytes


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A held call ended before it was answered: its handler is to be cancelled."""

    call: Call


@dataclass(frozen=True, slots=True)
class Replied:
    """A reply message of a watched call passed, decompressed."""

    call: Call
    message: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """A watched or held call is over."""

    call: Call
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message to be edited or watched could not be read, or its edit failed; it passed unchanged."""

    call: Call
    error: Exception


Event = Held | Cancelled | Replied | Ended | Unreadable


@dataclass(slots=True)
class Hold:
    """The request body of a held call, until it is answered."""

    chunks: list[bytes] = field(default_factory=list)
    size: int = 0
    """Bytes of body kept."""
    consumed: int = 0
    """Bytes of the kubelet's windows used for it: the body and its padding."""
    window: int = 0
    """The kubelet's view of the stream window, less the initial size."""
    complete: bool = False
    trailers: bool = False
    """The request ended with trailers, which wait behind the body."""


class Stream:
    """One call in progress. Most calls pass, and then everything but the first few fields is idle."""

    # Values that are the same for every new stream stand in the class: setting them took a tenth of a call's time.
    call: Call | None = None
    """Set if the method has a rule."""
    touched = False
    """The call has a rule; False: it passes, and nothing of it is ever copied, kept or changed."""
    hold: Hold | None = None
    request: MessageReader | None = None
    """Copies the request of a watched call."""
    reader: MessageReader | None = None
    """Copies the reply of a watched call."""
    editor: MessageReader | None = None
    """Collects the reply messages of a call whose reply is edited."""
    edit_call: Call | None = None
    """`call`, for edits that come after its end was told."""
    ledger: Ledger | None = None
    """Stream window of edited replies, less the initial size: what the runtime believes, and its debt.
    The kubelet's side of it is in `Outflow.deltas`."""
    reply: bytes | None = None
    replied = False
    client_done = False
    runtime_done = False
    sent = True
    """The request went out, or is on its way; False while held and after it was dropped."""
    started = False
    """The runtime's first header block went to the kubelet."""
    drop_requests = False
    """DATA that still comes from the kubelet is not wanted any more."""
    swallow_window = False
    """The kubelet has sent all: the runtime's WINDOW_UPDATEs are about bytes that it never had."""

    def __init__(self, stream: int, entry: Entry) -> None:
        self.id = stream
        self.entry = entry


class Connection:
    """State of one kubelet connection tied to one runtime connection."""

    def __init__(self, number: int, stats: Stats) -> None:
        self.number = number
        self.stats = stats
        self.requests = Ledger()
        self.replies = Ledger()
        self.to_runtime = Outflow(self.requests)
        self.to_client = Outflow(self.replies)
        self.streams: dict[int, Stream] = {}
        self.refused: OrderedDict[int, None] = OrderedDict()
        self.events: list[Event] = []
        self.last_stream = 0
        """The highest stream that the kubelet opened."""
        self.drained_above: int | None = None
        """After our GOAWAY: streams above this are not processed."""
        self.lost_above = frames.MAX_WINDOW
        """After the runtime's GOAWAY: streams above this were not processed."""
        self.runtime_goes = False
        """The runtime has sent a GOAWAY: the kubelet may be quicker to end the connection."""
        self.greeted = False
        """The runtime has sent its SETTINGS, which must be the first frame that the kubelet sees."""
        self.held_bytes = 0
        self.copied_bytes = 0
        """Of unfinished messages of watched calls."""

    # -- windows ---------------------------------------------------------------------------------------------------

    def give_client(self, size: int, stream: int = 0) -> None:
        """Return window for request bytes to the kubelet."""
        if size:
            self.to_client.send_window_update(stream, frames.window_update(stream, size))

    def give_runtime(self, size: int, stream: int = 0) -> None:
        """Return window for reply bytes to the runtime."""
        if size:
            self.to_runtime.send_window_update(stream, frames.window_update(stream, size))

    def top_up(self, stream: Stream) -> None:
        """Keep the kubelet able to send the rest of a held message, and everything else beside it."""
        hold = stream.hold
        if hold and not hold.complete:
            step = step_for(self.to_runtime.initial_window + hold.window)
            hold.window += step
            self.give_client(step, stream.id)
        self.top_up_requests()

    def top_up_requests(self) -> None:
        """Request bytes that stay here do not eat the window that the kubelet's other calls need."""
        self.give_client(_lend(self.requests, self.to_runtime))

    def top_up_replies(self) -> None:
        """Reply bytes that stay here do not eat the window that the runtime's other replies need."""
        self.give_runtime(_lend(self.replies, self.to_client))

    # -- what is kept ----------------------------------------------------------------------------------------------

    def hold_more(self, size: int) -> None:
        """Count *size* more bytes of a held request; for `release_hold`, fewer."""
        self.held_bytes += size
        self.stats.kept_bytes += size

    def _copy_more(self, size: int) -> None:
        self.copied_bytes += size
        self.stats.kept_bytes += size

    # -- watched calls ---------------------------------------------------------------------------------------------

    def copy(self, reader: MessageReader, payload: bytes) -> list[bytes]:
        """Show *payload* of a watched call to its *reader*; returns the messages that are whole now.

        Once `MAX_COPIED_BYTES` wait on the connection, or `MAX_KEPT_BYTES` on all, the message is passed over like one
        that is too large.
        """
        before_bytes = reader.waiting_bytes
        messages = reader.feed(payload)
        more_bytes = reader.waiting_bytes - before_bytes
        if more_bytes:
            is_full = self.copied_bytes + more_bytes > MAX_COPIED_BYTES
            if (is_full or self.stats.kept_bytes + more_bytes > MAX_KEPT_BYTES) and reader.announced_bytes:
                reader.pass_over()
            self._copy_more(reader.waiting_bytes - before_bytes)
        return messages

    # -- held calls ------------------------------------------------------------------------------------------------

    def release_hold(self, stream: Stream) -> Hold:
        """The stream is not held any more; what becomes of its bytes is the caller's."""
        hold = stream.hold
        assert hold is not None
        stream.hold = None
        self.hold_more(-hold.consumed)
        return hold

    def drop_hold(self, stream: Stream) -> None:
        """The held request will never be sent: return its bytes, cancel its handler."""
        hold = self.release_hold(stream)
        stream.sent = False
        stream.drop_requests = True
        self.give_client(self.requests.replaced(hold.consumed, 0))
        if not hold.complete:
            self.give_client(hold.consumed, stream.id)
        if hold.complete and stream.call:
            self.stats.cancelled_held += 1
            self.events.append(Cancelled(stream.call))
        if hold.trailers:
            self.to_runtime.drop_data(stream.id)

    def refuse(self, stream: Stream, code: StatusCode, text: str) -> None:
        """End a held call with a status of ours; the runtime's part of the stream is reset."""
        hold = self.release_hold(stream)
        stream.sent = False
        self.give_client(self.requests.replaced(hold.consumed, 0))
        self.to_runtime.drop_data(stream.id)
        self.to_runtime.send_frame(stream.id, frames.rst_stream(stream.id, frames.CANCEL))
        self.drop_replies(stream.id, stream.editor)
        started = stream.started and stream.id not in self.to_client.queues  # else its first headers wait there
        self.to_client.chunks.append(status_reply(stream.id, code, text, started=started))
        if not hold.complete:
            self.to_client.chunks.append(frames.rst_stream(stream.id, frames.NO_ERROR))
        self.stats.refused += 1
        self.remember_refused(stream.id)
        self.end(stream, OutcomeKind.NOT_SENT)
        self.close(stream)

    def remember_refused(self, stream: int) -> None:
        """Late frames of the runtime on *stream* are to be recognised."""
        self.refused[stream] = None
        if len(self.refused) > MAX_REFUSED_REMEMBERED:
            self.refused.popitem(last=False)

    # -- ends ------------------------------------------------------------------------------------------------------

    def end(self, stream: Stream, kind: OutcomeKind) -> None:
        """Tell the handlers once that a call is over."""
        call, stream.call = stream.call, None
        if call is None:
            return
        if kind is OutcomeKind.FAILED and monotonic() >= call.begun_s + call.timeout_s:
            kind = OutcomeKind.UNKNOWN  # a runtime that gives up at the deadline may go on with what it began
        if kind is OutcomeKind.UNKNOWN:
            self.stats.unknown_outcomes += 1
        rule = stream.entry.rule
        if rule and rule.done:
            self.events.append(Ended(call, Outcome(kind, stream.reply)))

    def close(self, stream: Stream) -> None:
        """Both peers are through with the stream."""
        if self.streams.pop(stream.id, None) and self.copied_bytes:
            copies = (stream.request, stream.reader)
            self._copy_more(-sum(reader.waiting_bytes for reader in copies if reader))
        self.to_runtime.close(stream.id)
        self.to_client.close(stream.id)

    def abort(self, stream: Stream, *, reset_by_client: bool) -> None:
        """One peer reset the stream: forget what waits for it, return the windows."""
        if stream.hold:
            self.drop_hold(stream)
        if self.drop_requests(stream.id):
            stream.sent = False
        if reset_by_client:
            self.drop_replies(stream.id, stream.editor)
        self.end(stream, self.broken_outcome(stream))
        self.close(stream)

    def drop_requests(self, stream: int) -> bool:
        """Forget what waits for the runtime on *stream*, return its window; True if any of its DATA waited."""
        unsent, waited = self.to_runtime.drop_data(stream)
        self.give_client(self.requests.replaced(unsent, 0))
        return waited

    def drop_replies(self, stream: int, editor: MessageReader | None = None) -> None:
        """Forget what waits for the kubelet on *stream* and what its *editor* collects; return the window."""
        unsent, _ = self.to_client.drop_data(stream)
        collected = len(editor.take_rest()) if editor else 0
        self.give_runtime(self.replies.replaced(unsent + collected, 0))

    def broken_outcome(self, stream: Stream) -> OutcomeKind:
        """What a call without a regular end came to."""
        if stream.replied:
            return OutcomeKind.OK
        unsent = any(item.is_data for item in self.to_runtime.queues.get(stream.id, ()))
        sent = stream.sent and stream.id <= self.lost_above and not unsent
        return OutcomeKind.UNKNOWN if sent else OutcomeKind.NOT_SENT

    def lost(self) -> None:
        """The connection is gone: every open call ends."""
        for stream in list(self.streams.values()):
            if stream.hold:
                self.drop_hold(stream)
            self.end(stream, self.broken_outcome(stream))
        self.streams.clear()
        self._copy_more(-self.copied_bytes)

    def held(self) -> Iterator[Stream]:
        """The streams whose request is held."""
        return (stream for stream in self.streams.values() if stream.hold)


def step_for(window: int) -> int:
    """What to add to the stream window of a peer whose message we keep; 0 while *window* is enough."""
    return 0 if window >= LOW_WINDOW else WINDOW_STEP - min(window, 0)


def _lend(ledger: Ledger, out: Outflow) -> int:
    """Let the sender of DATA send as much as if what is in flight had reached its receiver; returns the increment."""
    missing = ledger.in_flight - ledger.debt
    if missing <= 0 or ledger.sender >= LOW_WINDOW or out.queued_bytes > BUSY_QUEUE_BYTES:
        return 0
    return ledger.advance(missing)
