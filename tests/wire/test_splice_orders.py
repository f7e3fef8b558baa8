"""Orders of frames that are allowed but rare; most were found by `make fuzz`."""

import time
from typing import ClassVar

import pytest

from criproxy.errors import StatusCode
from criproxy.wire import frames
from criproxy.wire.calls import OutcomeKind, Proceed, Refuse, Rule
from criproxy.wire.message import encode
from criproxy.wire.state import Cancelled, Ended, Held
from tests.wire.talk import EDIT, HOLD, PASS, SETTINGS_ACK, TABLE, Talk, data, kinds, settings

ANSWER = "/test/Answer"


def small_windows(talk: Talk, size: int = 0) -> None:
    """Let every stream towards the runtime begin with a window of *size* bytes."""
    talk.runtime(settings(initial_window_size=size))
    talk.client(SETTINGS_ACK + SETTINGS_ACK)  # the first is for the settings that every `Talk` begins with


class TestRuntimeEndsFirst:
    """The runtime ends a stream before it has the whole request."""

    def test_end_on_data_ends_a_held_call(self, talk: Talk) -> None:
        """A reply that ends with DATA instead of trailers wins over the held request, too."""
        held = talk.hold(1)
        talk.runtime(talk.reply_headers(1) + data(1, b"early", end=True))

        cancelled, ended = talk.events()
        assert isinstance(cancelled, Cancelled)
        assert isinstance(ended, Ended)
        assert ended.outcome.kind is OutcomeKind.OK
        assert not talk.splice.answer(held.call, held.body, Proceed())
        talk.check_windows()

    def test_end_on_data_while_the_request_comes(self, talk: Talk) -> None:
        """The rest of a request that nobody wants is given back."""
        talk.client(talk.call(1, HOLD) + frames.frame(frames.DATA, 0, 1, bytes(100)))
        talk.runtime(talk.reply_headers(1) + data(1, b"early", end=True))

        assert talk.at_runtime() == [("RST_STREAM", 0, 1, frames.CANCEL.to_bytes(4, "big"))]
        assert talk.client(frames.frame(frames.DATA, frames.END_STREAM, 1, bytes(50))) == []
        assert ("WINDOW_UPDATE", 0, 0, (50).to_bytes(4, "big")) in talk.at_client()
        assert not any(isinstance(event, Held) for event in talk.events())
        assert talk.splice.idle
        talk.check_windows()

    def test_reset_after_the_reply_drops_what_waits(self, talk: Talk) -> None:
        """A server that answered early resets the stream: what waits for its window is given back."""
        small_windows(talk, 9)
        held = talk.hold(1, bytes(100))
        assert talk.answer(held, Proceed()) == [("DATA", 0, 1, encode(bytes(100))[:9])]
        talk.runtime(talk.reply(1))
        talk.runtime(frames.rst_stream(1, frames.NO_ERROR))

        assert talk.splice.idle
        talk.check_windows()


class TestWaitingStreams:
    """The first header block of a call has to wait for the blocks before it."""

    def blocked(self) -> Talk:
        """A conversation in which the trailers of call 1 wait, and so do all later header blocks."""
        talk = Talk()
        small_windows(talk, 9)
        talk.client(talk.call(1, HOLD) + data(1, bytes(100)))
        talk.client(self.trailers(talk, 1))
        held = talk.held()
        talk.answer(held, Proceed())
        return talk

    def trailers(self, talk: Talk, stream: int) -> bytes:
        """Request trailers."""
        block = talk.client_encoder.encode([("x-end", str(stream))])
        return frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, block)

    def release(self, talk: Talk) -> list[tuple[str, int]]:
        """Give the runtime's window; what gets there, as kinds and streams."""
        talk.runtime(frames.window_update(1, 1000))
        return kinds(talk.at_runtime())

    def test_a_held_call_with_trailers_keeps_its_headers(self) -> None:
        """The released message goes between the waiting headers and the trailers, not in their place."""
        talk = self.blocked()
        talk.client(talk.call(3, HOLD) + frames.frame(frames.DATA, 0, 3, encode(b"m")) + self.trailers(talk, 3))
        held = talk.held()
        assert talk.answer(held, Proceed()) == []

        assert self.release(talk) == [("DATA", 1), ("HEADERS", 1), ("HEADERS", 3), ("DATA", 3), ("HEADERS", 3)]
        talk.check_windows()

    def test_window_updates_wait_for_the_headers(self) -> None:
        """A stream that the runtime does not know yet gets no WINDOW_UPDATE before its headers."""
        talk = self.blocked()
        assert talk.client(talk.call(3, PASS) + frames.window_update(3, 10)) == []

        assert self.release(talk) == [("DATA", 1), ("HEADERS", 1), ("HEADERS", 3), ("WINDOW_UPDATE", 3)]

    def test_a_refusal_waits_for_the_headers(self) -> None:
        """The reset of a refused call comes after its headers, and nothing else of it comes."""
        talk = self.blocked()
        talk.client(talk.call(3, HOLD) + data(3, b"m", end=True))
        held = talk.held()
        assert talk.answer(held, Refuse(StatusCode.ABORTED, "no")) == []

        assert self.release(talk) == [("DATA", 1), ("HEADERS", 1), ("HEADERS", 3), ("RST_STREAM", 3)]
        talk.check_windows()

    def test_an_answer_at_once_waits_for_the_headers(self) -> None:
        """The reset of a call that is answered at once comes after its headers, too."""
        talk = self.blocked()
        talk.stats.use({**TABLE, ANSWER: TestAnsweredAtOnce.TABLE[ANSWER]})
        assert talk.client(talk.call(3, ANSWER) + data(3, b"m", end=True)) == []

        assert self.release(talk) == [("DATA", 1), ("HEADERS", 1), ("HEADERS", 3), ("RST_STREAM", 3)]
        talk.check_windows()


def test_window_updates_pass_waiting_data(talk: Talk) -> None:
    """A request that waits for the runtime's window does not keep the runtime from replying."""
    small_windows(talk, 9)
    talk.answer(talk.hold(1, bytes(100)), Proceed())

    assert talk.client(frames.window_update(1, 10)) == [("WINDOW_UPDATE", 0, 1, (10).to_bytes(4, "big"))]


def test_reset_while_the_end_of_the_reply_waits(talk: Talk) -> None:
    """The kubelet gives up a call that is over but for its own window: what waits goes back, later replies come."""
    talk.client(settings(initial_window_size=0))
    talk.runtime(SETTINGS_ACK + SETTINGS_ACK)
    talk.client(talk.call(1, EDIT) + data(1, b"m", end=True) + talk.call(3, PASS, end=True))
    held_back = talk.runtime(talk.reply_headers(1) + data(1, b"edit me") + talk.trailers(1) + talk.reply_headers(3))
    assert kinds(held_back) == [("HEADERS", 1)]
    talk.client(frames.rst_stream(1, frames.CANCEL))

    assert kinds(talk.at_client()) == [("HEADERS", 1), ("HEADERS", 3)]
    talk.check_windows()


class TestAnsweredAtOnce:
    """A method that the runtime does not know is answered before the runtime can say so."""

    TABLE: ClassVar = {ANSWER: Rule(answer=Refuse(StatusCode.ALREADY_EXISTS, "criproxy 1"))}

    @pytest.mark.parametrize("end", [False, True])
    def test_the_answer_does_not_wait_for_the_message(self, end: bool) -> None:
        """The runtime's own answer comes too late, also if the message comes in another piece, or never."""
        talk = Talk(self.TABLE)
        assert kinds(talk.client(talk.call(1, ANSWER, end=end))) == [("HEADERS", 1), ("RST_STREAM", 1)]
        status, *reset = talk.at_client()
        assert talk.decoded([status], talk.client_decoder)[0]["grpc-status"] == "6"
        assert status[1] & frames.END_STREAM
        assert [kind for kind, *_ in reset] == ([] if end else ["RST_STREAM"])
        assert end or talk.client(data(1, b"m", end=True)) == []
        assert not talk.splice.connection.streams
        talk.check_windows()

    def test_a_bypass_forwards_it(self) -> None:
        """No rule applies then."""
        talk = Talk(self.TABLE)
        talk.stats.bypass = True

        assert [kind for kind, *_ in talk.client(talk.call(1, ANSWER) + data(1, b"m"))] == ["HEADERS", "DATA"]


class TestRefusedWhileReplying:
    """A runtime may begin its reply before it has the request; the call can still be refused."""

    TABLE: ClassVar = {HOLD: Rule(hold=TABLE[HOLD].hold, edit=TABLE[EDIT].edit), PASS: Rule(), EDIT: TABLE[EDIT]}

    def test_part_of_a_message_to_be_edited_is_given_back(self) -> None:
        """What was collected for an edit goes nowhere: the runtime gets its window back."""
        talk = Talk(self.TABLE)
        held = talk.hold(1)
        talk.runtime(talk.reply_headers(1) + frames.frame(frames.DATA, 0, 1, encode(b"message")[:9]))

        sent = talk.answer(held, Refuse(StatusCode.ABORTED, "no"))
        assert ("WINDOW_UPDATE", 0, 0, (9).to_bytes(4, "big")) in sent
        talk.check_windows()

    def test_status_stands_alone_while_the_first_headers_wait(self) -> None:
        """Headers of the runtime that have not gone out yet come after the refusal, which is a whole reply."""
        talk = Talk(self.TABLE)
        talk.client(settings(initial_window_size=0))
        talk.runtime(SETTINGS_ACK + SETTINGS_ACK)
        talk.client(talk.call(1, EDIT) + data(1, b"m", end=True))
        talk.runtime(talk.reply_headers(1) + data(1, b"edit me") + talk.trailers(1))
        talk.events()
        held = talk.hold(3)
        assert talk.runtime(talk.reply_headers(3) + data(3, b"waits, too")) == []
        talk.answer(held, Refuse(StatusCode.ABORTED, "no"))
        sent = talk.at_client()
        assert [(kind, flags, stream) for kind, flags, stream, _ in sent if stream == 3] == [("HEADERS", 5, 3)]
        assert talk.decoded(sent[-1:], talk.client_decoder)[0][":status"] == "200"

        talk.client(frames.window_update(1, 1000))
        assert kinds(talk.at_client()) == [
            ("DATA", 1),
            ("HEADERS", 1),
            ("HEADERS", 3),
        ]
        talk.check_windows()


class TestMessageOutTrailersWaiting:
    """The message of a held call is out, but its trailers wait behind those of another call."""

    def waiting(self) -> Talk:
        """Call 3 is in that state, because of call 1."""
        talk = Talk()
        trailers = TestWaitingStreams().trailers
        small_windows(talk, 9)
        talk.client(talk.call(1, HOLD) + talk.call(3, HOLD) + data(1, bytes(100)) + trailers(talk, 1))
        talk.client(data(3, b"m") + trailers(talk, 3))
        first, second = talk.events()
        assert isinstance(first, Held)
        assert isinstance(second, Held)
        talk.answer(first, Proceed())
        assert talk.answer(second, Proceed()) == [("DATA", 0, 3, encode(b"m"))]
        return talk

    def test_reset(self) -> None:
        """The runtime has the message: what came of it is unknown."""
        talk = self.waiting()
        talk.client(frames.rst_stream(3, frames.CANCEL))

        (ended,) = talk.events()
        assert isinstance(ended, Ended)
        assert ended.outcome.kind is OutcomeKind.UNKNOWN

    def test_lost(self) -> None:
        """The same where the connection is lost; the message that waits was not sent."""
        talk = self.waiting()
        talk.splice.lost()

        kinds = {event.call.stream: event.outcome.kind for event in talk.events() if isinstance(event, Ended)}
        assert kinds == {1: OutcomeKind.NOT_SENT, 3: OutcomeKind.UNKNOWN}


def test_early_end_lets_the_kubelet_finish(talk: Talk) -> None:
    """A client that sends all of its request, although the reply has ended, does not run out of window."""
    talk.client(talk.call(1, HOLD) + frames.frame(frames.DATA, 0, 1, bytes(16_000)))
    assert ("WINDOW_UPDATE", 0, 1, (16_000).to_bytes(4, "big")) in talk.runtime(talk.reply(1))
    talk.client(frames.frame(frames.DATA, 0, 1, bytes(16_000)))

    assert ("WINDOW_UPDATE", 0, 1, (16_000).to_bytes(4, "big")) in talk.at_client()


def test_window_of_one_stream_is_cheap_while_many_wait(talk: Talk) -> None:
    """A WINDOW_UPDATE looks at its own stream, not at all that wait: a thousand updates take milliseconds."""
    small_windows(talk)
    for stream in range(1, 4001, 2):
        held = talk.hold(stream, b"waits")
        talk.answer(held, Proceed())
    begun = time.thread_time()  # other threads of this process do not count
    assert talk.runtime(frames.window_update(9001, 1) * 1000)

    assert time.thread_time() - begun < 0.3


def test_reset_before_all_of_the_message_is_out(talk: Talk) -> None:
    """The runtime has a part of it, and so no call: nothing was done."""
    small_windows(talk, 9)
    talk.answer(talk.hold(1), Proceed())
    talk.client(frames.rst_stream(1, frames.CANCEL))

    assert [outcome.kind for outcome in talk.outcomes()] == [OutcomeKind.NOT_SENT]
