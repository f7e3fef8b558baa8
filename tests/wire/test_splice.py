"""Each rule of the data plane, as a conversation: what one peer sends, and what reaches the other."""

import gzip
from functools import partial

import hpack
import pytest
from hpack.exceptions import HPACKError
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import StatusCode, WireError
from criproxy.wire import frames, state
from criproxy.wire.calls import Outcome, OutcomeKind, Proceed, Refuse, Rule
from criproxy.wire.message import encode
from criproxy.wire.splice import Splice
from criproxy.wire.state import Cancelled, Ended, Replied, Unreadable
from criproxy.wire.stats import Stats
from tests.wire.talk import EDIT, HOLD, PASS, SETTINGS_ACK, WATCH, Talk, data, kinds, settings, split


class TestPass:
    """A call that is in no table."""

    def test_bytes_pass_unchanged(self, talk: Talk) -> None:
        """Both directions, unknown headers and padding included."""
        request = talk.call(1, PASS, extra={"x": "y" * 300}) + frames.frame(
            0, 0x9, 1, b"\x02\x00\x00\x00\x00\x00" + b"\x00" * 2
        )
        reply = talk.reply(1)

        assert talk.client(request) == split(request)
        assert talk.runtime(reply) == split(reply)
        assert talk.events() == []
        assert talk.splice.idle
        talk.check_windows()

    def test_calls_are_counted_by_path(self, talk: Talk) -> None:
        """With the way that the rule gives."""
        talk.client(talk.call(1, PASS) + talk.call(3, PASS) + talk.call(5, HOLD))

        assert {(e.method, e.way): e.calls for e in talk.stats.entries.values() if e.calls} == {
            (PASS, "pass"): 2,
            (HOLD, "hold"): 1,
        }

    def test_too_many_paths_are_counted_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A client that invents paths costs no memory."""
        monkeypatch.setattr("criproxy.wire.stats.MAX_PATHS", 5)
        talk = Talk()
        for number in range(10):
            talk.client(talk.call(2 * number + 1, f"/invented/{number}", end=True))

        assert (len(talk.stats.entries), talk.stats.other.calls) == (5, 8)

    def test_bypass_leaves_everything_alone(self, talk: Talk) -> None:
        """A held method passes, and is counted as bypassed."""
        talk.stats.bypass = True
        request = talk.call(1, HOLD) + data(1, b"m", end=True)

        assert talk.client(request) == split(request)
        assert talk.stats.entries[HOLD.encode()].bypassed == 1


class TestHold:
    """A call whose message waits for a verdict."""

    def test_same_bytes_go_on(self, talk: Talk) -> None:
        """With Proceed(None) the very bytes go on, a compressed message too."""
        body = b"\x01" + len(gzip.compress(b"m")).to_bytes(4, "big") + gzip.compress(b"m")
        talk.client(talk.call(1, HOLD, extra={"grpc-encoding": "gzip"}) + frames.frame(0, 1, 1, body))
        held = talk.held()
        assert (held.call.encoding, talk.answer(held, Proceed())) == ("gzip", [("DATA", 1, 1, body)])
        talk.check_windows()

    def test_new_bytes_go_on(self, talk: Talk) -> None:
        """A longer message becomes a debt, which the runtime's next increments pay."""
        held = talk.hold(1, b"m")

        assert talk.answer(held, Proceed(b"m" * 101)) == [("DATA", 1, 1, encode(b"m" * 101))]
        assert talk.splice.connection.requests.debt == 100
        talk.check_windows()
        assert talk.runtime(frames.window_update(0, 60)) == []
        assert talk.runtime(frames.window_update(0, 106)) == split(frames.window_update(0, 66))
        talk.check_windows()

    def test_shrunk_message_returns_window_at_once(self, talk: Talk) -> None:
        """What the runtime never gets is given back to the kubelet."""
        held = talk.hold(1, b"m" * 100)
        talk.answer(held, Proceed(b"m"))

        assert talk.at_client() == split(frames.window_update(0, 99))
        talk.check_windows()

    def test_end_on_an_empty_frame(self, talk: Talk) -> None:
        """END_STREAM may come on a DATA frame of its own; the runtime gets it on the last frame."""
        talk.client(talk.call(1, HOLD) + data(1, b"m"))
        assert talk.events() == []
        talk.client(frames.frame(frames.DATA, frames.END_STREAM, 1))
        held = talk.held()

        assert talk.answer(held, Proceed()) == [("DATA", 1, 1, encode(b"m"))]

    def test_call_without_a_body_passes(self, talk: Talk) -> None:
        """HEADERS with END_STREAM have nothing to hold."""
        raw = talk.call(1, HOLD, end=True)

        assert talk.client(raw) == split(raw)
        assert talk.events() == []

    def test_trailers_of_the_client_wait_behind_the_message(self, talk: Talk) -> None:
        """So do all later header blocks, because HPACK wants them in order."""
        talk.client(talk.call(1, HOLD) + data(1, b"m"))
        end = frames.frame(1, 5, 1, talk.client_encoder.encode([("x-trailer", "t")]))
        assert talk.client(end + talk.call(3, PASS) + data(3, b"d", end=True)) == []
        held = talk.held()

        sent = talk.answer(held, Proceed(b"new"))

        assert kinds(sent) == [
            ("DATA", 1),
            ("HEADERS", 1),
            ("HEADERS", 3),
            ("DATA", 3),
        ]
        assert sent[0][1] == 0
        talk.check_windows()

    def test_padding_is_given_back(self, talk: Talk) -> None:
        """The runtime gets the message without padding; the kubelet gets the padding's window."""
        talk.client(talk.call(1, HOLD) + frames.frame(0, 0x9, 1, b"\x09" + encode(b"m") + b"\x00" * 9))
        held = talk.held()

        assert talk.answer(held, Proceed()) == [("DATA", 1, 1, encode(b"m"))]
        assert talk.at_client() == split(frames.window_update(0, 10))
        talk.check_windows()

    def test_message_larger_than_the_runtimes_window_waits(self, talk: Talk) -> None:
        """It goes on as window comes; other frames pass meanwhile."""
        held = talk.hold(1, b"m")
        first = talk.answer(held, Proceed(b"x" * 70_000))
        assert sum(len(payload) for _, _, _, payload in first) == 65_535
        ping = frames.frame(frames.PING, 0, 0, b"12345678")
        assert talk.client(ping) == split(ping)

        talk.runtime(frames.window_update(1, 10_000))
        assert talk.at_runtime() == []
        talk.runtime(frames.window_update(0, 10_000))

        assert [(flags, len(payload)) for _, flags, _, payload in talk.at_runtime()] == [(1, 4_470)]
        talk.check_windows()

    def test_held_calls_do_not_block_the_others(self, talk: Talk) -> None:
        """Their bytes are credited, so that the kubelet can always send."""
        window = 65_535
        for number in range(100):
            talk.hold(2 * number + 1, b"x" * 8_000)
            window -= 8_005
            window += sum(int.from_bytes(p, "big") for _, _, stream, p in talk.at_client() if stream == 0)
            assert window > 8_005

    def test_settings_of_the_runtime_count_from_the_acknowledgement_on(self, talk: Talk) -> None:
        """Until the kubelet has acknowledged a smaller window, the old one holds."""
        talk.runtime(settings(initial_window_size=10, max_frame_size=20_000))
        held = talk.hold(1, b"m" * 100)
        assert [len(f[3]) for f in talk.answer(held, Proceed())] == [105]
        talk.client(SETTINGS_ACK * 2)
        held = talk.hold(3, b"m" * 100)

        assert [len(f[3]) for f in talk.answer(held, Proceed())] == [10]
        talk.runtime(frames.window_update(3, 95))
        assert [len(f[3]) for f in talk.at_runtime()] == [95]

    def test_runtime_that_ends_first_wins(self, talk: Talk) -> None:
        """An unknown method is answered without its body: that answer goes on, the message does not."""
        held = talk.hold(1, b"m" * 100)
        trailers = talk.trailers(1, 12)

        assert split(trailers)[0] in talk.runtime(trailers)
        assert talk.events() == [Cancelled(held.call), Ended(held.call, Outcome(OutcomeKind.NOT_SENT))]
        assert talk.at_runtime() == [("RST_STREAM", 0, 1, (8).to_bytes(4, "big"))]
        talk.check_windows()

    def test_message_that_is_still_coming_is_swallowed_after_an_early_end(self, talk: Talk) -> None:
        """DATA of a call that the runtime has ended is given back to the kubelet."""
        talk.client(talk.call(1, HOLD) + frames.frame(0, 0, 1, b"\x00\x00\x00\x00\x02a"))
        talk.runtime(talk.trailers(1, 12))

        assert talk.at_runtime() == [("RST_STREAM", 0, 1, (8).to_bytes(4, "big"))]
        assert talk.client(frames.frame(0, 1, 1, b"b")) == []
        assert talk.splice.idle
        talk.check_windows()

    def test_goaway_undoes_what_is_held_above_its_last_stream(self, talk: Talk) -> None:
        """The kubelet repeats those calls elsewhere; the runtime never sees them here."""
        first, second = talk.hold(1), talk.hold(3)
        raw = frames.goaway(1, 0)

        assert split(raw)[0] in talk.runtime(raw)
        assert talk.events() == [Cancelled(second.call), Ended(second.call, Outcome(OutcomeKind.NOT_SENT))]
        assert talk.answer(first, Proceed()) == [("DATA", 1, 1, encode(b"message"))]

    def test_too_large_message_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a sentence; what still comes of it is swallowed."""
        monkeypatch.setattr("criproxy.wire.requests.MAX_MESSAGE_BYTES", 1000)
        talk = Talk()
        sent = talk.client(talk.call(1, HOLD) + frames.frame(0, 0, 1, b"x" * 2000))
        assert [kind for kind, *_ in sent] == ["HEADERS", "RST_STREAM"]
        reply = talk.at_client()

        assert [kind for kind, *_ in reply] == ["WINDOW_UPDATE", "HEADERS", "RST_STREAM"]
        (fields,) = talk.decoded(reply, talk.client_decoder)
        assert fields["grpc-status"] == "8"
        assert "too large" in fields["grpc-message"]
        assert talk.client(frames.frame(0, 0, 1, b"x" * 2000)) == []
        talk.check_windows()

    def test_connections_hold_no_more_together_than_one_may(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The call that exceeds the limit of all is refused; what a lost connection held counts no more."""
        monkeypatch.setattr("criproxy.wire.requests.MAX_KEPT_BYTES", 3000)
        talks, body = [Talk() for _ in range(3)], partial(frames.frame, 0, 0, payload=b"x" * 1400)
        for talk in talks:
            talk.splice.connection.stats = talks[0].stats
        for talk in talks[:2]:
            assert [kind for kind, *_ in talk.client(talk.call(1, HOLD) + body(1))] == ["HEADERS"]
        third = talks[2].client(talks[2].call(1, HOLD) + body(1))
        assert [kind for kind, *_ in third] == ["HEADERS", "RST_STREAM"]
        talks[0].splice.lost()
        again = talks[2].client(talks[2].call(3, HOLD) + body(3))
        assert [kind for kind, *_ in again] == ["HEADERS"]
        for talk in talks[1:]:
            talk.splice.lost()
        assert talks[0].stats.kept_bytes == 0

    def test_answer_to_a_later_call_of_the_same_number_is_not_mixed_up(self, talk: Talk) -> None:
        """A verdict for a call that is over changes nothing."""
        held = talk.hold(1)
        talk.splice.lost()

        assert not talk.splice.answer(held.call, held.body, Refuse(StatusCode.INTERNAL, "late"))


class TestRefuse:
    """A call that is ended with a status of ours."""

    def test_kubelet_gets_the_status_and_its_window(self, talk: Talk) -> None:
        """The runtime gets a reset."""
        held = talk.hold(1, b"m" * 100)

        assert talk.answer(held, Refuse(StatusCode.RESOURCE_EXHAUSTED, "no CPUs")) == split(
            frames.rst_stream(1, frames.CANCEL)
        )
        reply = talk.at_client()
        assert reply[0] == split(frames.window_update(0, 105))[0]
        (fields,) = talk.decoded(reply, talk.client_decoder)
        assert fields == {
            ":status": "200",
            "content-type": "application/grpc",
            "grpc-status": "8",
            "grpc-message": "no CPUs",
        }
        assert talk.outcomes() == [Outcome(OutcomeKind.NOT_SENT)]
        talk.check_windows()

    def test_late_frames_of_the_runtime(self, talk: Talk) -> None:
        """DATA is swallowed and given back, window and reset are dropped, header blocks go on for HPACK."""
        held = talk.hold(1)
        talk.answer(held, Refuse(StatusCode.ABORTED, "no"))
        talk.decoded(talk.at_client(), talk.client_decoder)

        sent = talk.runtime(talk.reply_headers(1) + data(1, b"late") + frames.window_update(1, 5) + talk.trailers(1))
        assert [kind for kind, *_ in sent] == ["HEADERS", "HEADERS"]
        assert talk.at_runtime() == split(frames.window_update(0, 9))
        talk.decoded(sent, talk.client_decoder)

        talk.client(talk.call(3, PASS, end=True))
        (_, fields) = talk.decoded(talk.runtime(talk.reply(3)), talk.client_decoder)
        assert fields["x-stream"] == "3"
        talk.check_windows()

    def test_late_reset_is_dropped_in_both_directions(self, talk: Talk) -> None:
        """Each peer thinks that the stream is over."""
        held = talk.hold(1)
        talk.answer(held, Refuse(StatusCode.ABORTED, "no"))
        talk.at_client()

        assert talk.client(frames.rst_stream(1, 8) + frames.window_update(1, 9)) == []
        assert talk.runtime(frames.rst_stream(1, 8)) == []

    def test_refused_streams_are_forgotten_in_the_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Memory of them is bounded."""
        monkeypatch.setattr(state, "MAX_REFUSED_REMEMBERED", 10)
        talk = Talk()
        for number in range(50):
            talk.answer(talk.hold(2 * number + 1), Refuse(StatusCode.ABORTED, "no"))
            talk.events()

        assert list(talk.splice.connection.refused) == list(range(81, 100, 2))

    def test_refusal_after_the_reply_began(self, talk: Talk) -> None:
        """Initial metadata that went out already is followed by trailers alone."""
        held = talk.hold(1)
        talk.decoded(talk.runtime(talk.reply_headers(1)), talk.client_decoder)
        talk.answer(held, Refuse(StatusCode.ABORTED, "no"))

        (fields,) = talk.decoded(talk.at_client(), talk.client_decoder)
        assert list(fields) == ["grpc-status", "grpc-message"]


class TestWatch:
    """A call whose end is told."""

    @pytest.mark.parametrize("message", [b"", b"reply"])
    def test_message_before_the_end_is_success(self, talk: Talk, message: bytes) -> None:
        """An empty message is a message."""
        talk.watch(1)
        talk.runtime(talk.reply(1, message))
        (ended,) = talk.events()

        assert isinstance(ended, Ended)
        assert (ended.outcome, ended.call.request) == (Outcome(OutcomeKind.OK, message), b"request")

    def test_trailers_without_a_message_are_a_failure(self, talk: Talk) -> None:
        """Whatever their status, which is not decoded."""
        talk.watch(1)
        talk.runtime(talk.reply_headers(1) + talk.trailers(1, 5))

        assert talk.outcomes() == [Outcome(OutcomeKind.FAILED)]

    @pytest.mark.parametrize(
        ("timeout", "kind"),
        [
            pytest.param("1n", OutcomeKind.UNKNOWN, id="passed"),
            pytest.param("99999999H", OutcomeKind.FAILED, id="far-away"),
            pytest.param("soon", OutcomeKind.FAILED, id="malformed"),
        ],
    )
    def test_failure_after_the_deadline_says_nothing(self, talk: Talk, timeout: str, kind: OutcomeKind) -> None:
        """A runtime may answer a passed deadline with trailers, and still go on with what it began."""
        talk.watch(1, extra={"grpc-timeout": timeout})
        talk.runtime(talk.reply_headers(1) + talk.trailers(1, 4))

        assert talk.outcomes() == [Outcome(kind)]

    def test_reset_leaves_the_outcome_unknown(self, talk: Talk) -> None:
        """By the kubelet (a deadline) or by the runtime."""
        talk.watch(1)
        talk.watch(3)
        talk.client(frames.rst_stream(1, 8))
        talk.runtime(frames.rst_stream(3, 2))

        assert (talk.outcomes(), talk.stats.unknown_outcomes) == ([Outcome(OutcomeKind.UNKNOWN)] * 2, 2)

    def test_lost_connection_leaves_the_outcome_unknown(self, talk: Talk) -> None:
        """Held calls were not sent; those above the runtime's GOAWAY were not processed."""
        talk.watch(1)
        talk.hold(3)
        talk.watch(5)
        talk.runtime(frames.goaway(3, 0))
        assert talk.outcomes() == [Outcome(OutcomeKind.NOT_SENT)]
        talk.splice.lost()

        assert talk.outcomes() == [Outcome(OutcomeKind.UNKNOWN), Outcome(OutcomeKind.NOT_SENT)]

    def test_every_message_of_a_stream_is_told(self) -> None:
        """In order, then the end with the first one."""
        talk = Talk({WATCH: Rule(done=lambda c, o: None, each=lambda c, m: None)})
        talk.watch(1)
        talk.runtime(talk.reply_headers(1) + data(1, b"a") + data(1, b"b") + talk.trailers(1))
        events = talk.events()

        assert [e.message for e in events if isinstance(e, Replied)] == [b"a", b"b"]
        assert isinstance(events[-1], Ended)
        assert events[-1].outcome == Outcome(OutcomeKind.OK, b"a")

    def test_copies_of_a_connection_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Many large messages at once pass all the same; those beyond the bound are not shown."""
        monkeypatch.setattr(state, "MAX_COPIED_BYTES", 1_000)
        talk = Talk()
        body = encode(b"x" * 600)
        for stream in (1, 3, 5):
            talk.client(talk.call(stream, WATCH) + frames.frame(frames.DATA, 0, stream, body[:500]))
            assert talk.splice.connection.copied_bytes <= 1_000
        for stream in (1, 3, 5):
            sent = talk.client(frames.frame(frames.DATA, frames.END_STREAM, stream, body[500:]))
            assert [payload for _, _, _, payload in sent] == [body[500:]]
            talk.runtime(talk.reply(stream))
        ended = [event for event in talk.events() if isinstance(event, Ended)]

        assert [event.call.request for event in ended] == [b"x" * 600, b"x" * 600, None]
        assert [event.outcome.kind for event in ended] == [OutcomeKind.OK] * 3
        assert talk.splice.connection.copied_bytes == 0

    def test_ends_are_told_in_arrival_order(self, talk: Talk) -> None:
        """Of the replies, not of the requests."""
        talk.watch(1)
        talk.watch(3)
        talk.runtime(talk.reply(3) + talk.reply(1))

        assert [event.call.stream for event in talk.events()] == [3, 1]

    def test_held_call_tells_its_end_too(self, talk: Talk) -> None:
        """With the reply of the runtime."""
        talk.answer(talk.hold(1), Proceed())
        talk.runtime(talk.reply(1, b"id"))

        assert talk.outcomes() == [Outcome(OutcomeKind.OK, b"id")]
        assert talk.splice.idle


class TestEdit:
    """A call whose reply is changed on its way."""

    def test_reply_is_edited(self, talk: Talk) -> None:
        """The growth is a debt towards the runtime, paid by the kubelet's next increments."""
        talk.watch(1, EDIT)
        sent = talk.runtime(talk.reply(1, b"x"))

        assert [(kind, payload) for kind, _, _, payload in sent if kind == "DATA"] == [("DATA", encode(b"edited x"))]
        assert [kind for kind, *_ in sent] == ["HEADERS", "DATA", "HEADERS"]
        assert talk.client(frames.window_update(0, 10)) == split(frames.window_update(0, 3))
        talk.check_windows()

    def test_unchanged_reply_keeps_its_bytes(self, talk: Talk) -> None:
        """None means the same bytes, compressed ones too."""
        talk.watch(1, EDIT)
        packed = gzip.compress(b"same")
        raw = frames.frame(0, 0, 1, b"\x01" + len(packed).to_bytes(4, "big") + packed)

        assert talk.runtime(raw) == split(raw)

    def test_compressed_reply_is_edited(self, talk: Talk) -> None:
        """It goes on uncompressed."""
        talk.watch(1, EDIT)
        packed = gzip.compress(b"x")

        assert talk.runtime(frames.frame(0, 0, 1, b"\x01" + len(packed).to_bytes(4, "big") + packed))[0][3] == encode(
            b"edited x"
        )

    def test_unreadable_reply_passes(self) -> None:
        """It is reported, and the kubelet gets it as it is."""
        talk = Talk({EDIT: Rule(edit=lambda call, message: b"never")})
        talk.watch(1, EDIT)
        raw = frames.frame(0, 0, 1, b"\x01\x00\x00\x00\x01?")

        assert talk.runtime(raw) == split(raw)
        assert [type(event) for event in talk.events()] == [Unreadable]

    def test_failing_edit_leaves_the_reply(self) -> None:
        """A fault of a handler costs the kubelet nothing."""
        talk = Talk({EDIT: Rule(edit=lambda call, message: 1 // 0)})  # type: ignore[arg-type,return-value]
        talk.watch(1, EDIT)

        assert talk.runtime(data(1, b"x")) == split(data(1, b"x"))
        assert [type(event) for event in talk.events()] == [Unreadable]

    def test_stream_is_edited_message_by_message(self, talk: Talk) -> None:
        """However the frames cut the messages."""
        talk.watch(1, EDIT)
        raw = encode(b"a") + encode(b"b") + encode(b"c")
        sent = talk.runtime(talk.reply_headers(1))
        for at in range(0, len(raw), 4):
            sent += talk.runtime(frames.frame(0, 0, 1, raw[at : at + 4]))
        sent += talk.runtime(talk.trailers(1))

        body = b"".join(payload for kind, _, _, payload in sent if kind == "DATA")
        assert body == encode(b"edited a") + encode(b"edited b") + encode(b"edited c")
        talk.check_windows()

    def test_half_a_message_at_the_end_passes(self, talk: Talk) -> None:
        """Bytes stay bytes, even broken ones."""
        talk.watch(1, EDIT)
        talk.runtime(talk.reply_headers(1))
        broken = frames.frame(0, 0, 1, b"\x00\x00\x00\x00\x09half")
        assert talk.runtime(broken) == []

        assert [kind for kind, *_ in talk.runtime(talk.trailers(1))] == ["DATA", "HEADERS"]
        talk.check_windows()

    def test_reply_larger_than_the_kubelets_window_is_collected(self, talk: Talk) -> None:
        """The runtime is lent window, and repays it."""
        talk.watch(1, EDIT)
        body, sent, windows = encode(b"x" * 300_000), 0, {0: 65_535, 1: 65_535}
        got = b""
        talk.at_runtime()
        while sent < len(body):
            size = min(16_384, *windows.values(), len(body) - sent)
            assert size, "the runtime is stuck"
            got += b"".join(
                f[3] for f in talk.runtime(frames.frame(0, 0, 1, body[sent : sent + size])) if f[0] == "DATA"
            )
            sent += size
            for stream in windows:
                windows[stream] -= size
            for _, _, stream, payload in talk.at_runtime():
                windows[stream] += int.from_bytes(payload, "big")
        for _ in range(20):
            talk.client(frames.window_update(0, 30_000) + frames.window_update(1, 30_000))
            got += b"".join(f[3] for f in talk.at_client() if f[0] == "DATA")

        assert got == encode(b"edited " + b"x" * 300_000)
        talk.check_windows()

    def test_cancelled_edit_returns_the_runtimes_window(self) -> None:
        """What waits for the kubelet is dropped when it resets the call."""
        talk = Talk({EDIT: Rule(edit=lambda call, message: message + b"+" * 70_000)})
        talk.watch(1, EDIT)
        talk.runtime(talk.reply_headers(1) + data(1, b"x"))
        talk.client(frames.rst_stream(1, 8))

        talk.check_windows()
        assert talk.splice.idle


class TestConnection:
    """Ends, limits and what is no call."""

    def test_wrong_preface_is_refused(self) -> None:
        """As soon as it differs."""
        splice = Splice(1, Stats({}))
        splice.from_client(b"PRI * ")
        with pytest.raises(WireError, match="preface"):
            splice.from_client(b"GET / HTTP/1.1\r\n")

    @pytest.mark.parametrize(
        ("block", "reason"),
        [
            pytest.param(b"\xff" * 6, "Variable integer representation is too long", id="endless-integer"),
            pytest.param(b"\x40\x7f", "Unable to decode HPACK integer representation", id="cut-integer"),
            pytest.param(b"\x00\x85ab", "Truncated header block", id="cut-string"),
            pytest.param(b"\xc6", "Invalid table index 70", id="unknown-index"),
        ],
    )
    def test_broken_header_block_is_refused(self, talk: Talk, block: bytes, reason: str) -> None:
        """The HPACK tables of the three ends would differ from then on; the reason shows nothing of the block."""
        with pytest.raises(WireError) as caught:
            talk.client(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block))
        assert caught.value.http2_code == frames.COMPRESSION_ERROR
        assert str(caught.value) == f"a header block cannot be decoded: {reason}"

    def test_header_table_grows_with_the_runtimes_settings(self, talk: Talk) -> None:
        """The listening decoder allows what the runtime allows."""
        talk.runtime(settings(header_table_size=65_536))
        talk.client_encoder.header_table_size = 65_536
        request = talk.call(1, PASS, extra={f"x-{n}": "v" * 200 for n in range(60)})

        assert talk.client(request + talk.call(3, PASS))[0][0] == "HEADERS"

    def test_our_goaway_lets_open_calls_finish(self, talk: Talk) -> None:
        """Calls that come later are not done here: the kubelet repeats them elsewhere."""
        talk.client(talk.call(1, PASS) + data(1, b"r", end=True))
        talk.splice.go_away()
        assert talk.at_client() == split(frames.goaway(1, 0))

        sent = talk.client(talk.call(3, HOLD) + data(3, b"m", end=True))

        assert (kinds(sent), talk.events()) == ([("HEADERS", 3), ("RST_STREAM", 3)], [])
        assert not talk.splice.idle
        talk.runtime(talk.reply(1))
        assert talk.splice.idle

    def test_oversize_frames_are_allowed_once_announced(self, talk: Talk) -> None:
        """Each side may send what the other announced."""
        talk.runtime(settings(max_frame_size=20_000))
        talk.client(talk.call(1, PASS))

        assert len(talk.client(frames.frame(0, 1, 1, b"x" * 20_000))) == 1
        with pytest.raises(WireError, match="16384 were announced"):
            talk.runtime(frames.frame(0, 1, 1, b"x" * 20_000))

    def test_endless_settings_are_refused(self, talk: Talk) -> None:
        """A peer that never acknowledges cannot make us keep all of them."""
        with pytest.raises(WireError, match="SETTINGS"):
            talk.runtime(settings(initial_window_size=1) * 1_001)

    def test_too_many_calls_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A client with thousands of open calls is no kubelet."""
        monkeypatch.setattr("criproxy.wire.requests.MAX_STREAMS", 10)
        talk = Talk()

        with pytest.raises(WireError, match="more than 10 calls"):
            talk.client(b"".join(talk.call(2 * n + 1, PASS) for n in range(11)))

    def test_push_promise_of_the_runtime_keeps_its_place(self, talk: Talk) -> None:
        """It passes; from a client it is an error."""
        raw = frames.frame(frames.PUSH_PROMISE, 4, 1, b"\x00\x00\x00\x02\x88")

        assert talk.runtime(raw) == split(raw)
        with pytest.raises(WireError, match="PUSH_PROMISE"):
            talk.client(raw)


def test_hpack_is_the_library_that_listens(talk: Talk) -> None:
    """The decoder takes 1 MiB of headers, not the library's 64 kB."""
    request = talk.call(1, PASS, extra={f"x-{n}": "v" * 1000 for n in range(100)})
    raw = frames.frame(1, 0, 1, request[9 : 9 + 16_000])
    for at in range(16_000, len(request) - 9, 16_000):
        last = at + 16_000 >= len(request) - 9
        raw += frames.frame(9, 4 if last else 0, 1, request[9 + at : 9 + at + 16_000])

    assert talk.client(raw) == split(raw)
    assert isinstance(talk.splice._requests.decoder, hpack.Decoder)


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([":path", ":method", "te", "grpc-timeout", "x"]),
                st.sampled_from(["POST", "trailers", "/a/B", "1", "2", "v" * 100]),
                st.booleans(),
            ),
            max_size=8,
        ),
        max_size=12,
    ),
    st.lists(st.sampled_from([0, 100, 4096]), min_size=1),
)
def test_listener_reads_what_the_library_reads(lists: list[list[tuple[str, str, bool]]], sizes: list[int]) -> None:
    """Block after block, with the same fields and the same table, whatever the encoder indexes and resizes."""
    listener, library, encoder = Talk().splice._requests, hpack.Decoder(), hpack.Encoder()
    for number, fields in enumerate(lists):
        encoder.header_table_size = sizes[number % len(sizes)]
        block = encoder.encode(fields, huffman=bool(number % 2))

        assert [tuple(f) for f in listener._decode(block)] == [tuple(f) for f in library.decode(block, raw=True)]
        assert listener.decoder.header_table.dynamic_entries == library.header_table.dynamic_entries


@given(st.binary(max_size=40))
def test_listener_refuses_what_the_library_refuses(block: bytes) -> None:
    """Malformed blocks end the connection, as they would at the runtime."""
    listener, library = Talk().splice._requests, hpack.Decoder()
    try:
        expected = [tuple(f) for f in library.decode(block, raw=True)]
    except HPACKError:
        with pytest.raises(HPACKError):
            listener._decode(block)
    else:
        assert [tuple(f) for f in listener._decode(block)] == expected
