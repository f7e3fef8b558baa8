"""Random lives of a spliced connection: a script of what both peers and the handlers do, played in memory.

A script is a list of `Step`; each names an action and two numbers that choose stream, size or kind, so that every
script is valid and shrinks well. `Life.play` plays it, `Life.settle` lets everything end and checks it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from criproxy.wire.calls import Outcome, OutcomeKind, Proceed, Refuse, Verdict
from tests.wire.rawpeer import INITIAL_WINDOW, MAX_FRAME, PING, PRIORITY, TABLE_SIZE, Endpoint, Fields, grpc
from tests.wire.spliced import (
    ANSWER,
    EACH,
    EDIT,
    HOLD,
    HOLD_EDIT,
    PASS,
    REFUSED,
    WATCH,
    Cut,
    Spliced,
    Told,
    grown,
    whole,
)

PATHS = [PASS, WATCH, HOLD, EDIT, EACH, HOLD_EDIT]
SIZES = [0, 1, 300, 5_000, 20_000, 70_000]
WINDOWS = [65_535, 0, 1, 100, 20_000, 300_000]
MAX_CALLS = 6
UNKNOWN_KIND = 0xBB

Step = tuple[str, int, int]


@dataclass(slots=True)
class Plan:
    """What one call is meant to be."""

    stream: int
    path: str
    request: bytes = field(repr=False)
    """What the client means to send (with prefix)."""
    trailers: bool = False
    """The client ends its request with trailers."""
    expected: bytes = field(default=b"", repr=False)
    """What the runtime should get: the request, or what a verdict made of it."""
    replies: list[bytes] = field(default_factory=list, repr=False)
    status: int = 0
    replied: bool = False
    refused: bool = False
    ended_early: bool = False
    """The runtime answered before it had the whole request."""
    reset: str = ""
    """Who gave the call up: ``client``, ``runtime`` or nobody."""

    @property
    def reply_body(self) -> bytes:
        """What the client should get."""
        edited = self.path in (EDIT, HOLD_EDIT)
        return b"".join(grpc(grown(message) if edited else message) for message in self.replies)

    @property
    def clean(self) -> bool:
        """Nothing but the regular way."""
        return not (self.refused or self.ended_early or self.reset)


def chunks(seed: int) -> Cut:
    """Cut bytes anywhere, the same way for the same seed."""
    dice = random.Random(seed)

    def cut(data: bytes) -> list[bytes]:
        pieces = []
        while data:
            size = dice.choice([1, 2, 8, 9, 10, 100, 1_000, 17_000])
            pieces.append(data[:size])
            data = data[size:]
        return pieces

    return cut


class Life:
    """One connection and what was meant to happen on it."""

    def __init__(self, client: Endpoint, runtime: Endpoint, cut: Cut = whole) -> None:
        self.both = Spliced(client=client, runtime=runtime, cut=cut)
        self.client, self.runtime = client, runtime
        self.plans: list[Plan] = []
        self.late_verdicts = 0

    # -- the script ------------------------------------------------------------------------------------------------

    def play(self, script: list[Step]) -> None:
        """Do every step of *script*."""
        actions: dict[str, Callable[[int, int], None]] = {
            "open": self._open,
            "push": self._push,
            "pipe": self._pipe,
            "run": lambda a, b: self.both.run(),
            "reply": self._reply,
            "reset": self._reset,
            "grant": self._grant,
            "settings": self._settings,
            "answer": self._answer,
            "noise": self._noise,
        }
        for name, a, b in script:
            actions[name](a, b)

    def _open(self, a: int, b: int) -> None:
        if len(self.plans) >= MAX_CALLS:
            return
        path, shape = PATHS[a % len(PATHS)], b // 8 % 8
        if path == HOLD and shape > 4:
            path = ANSWER
        extra: Fields = [("x-long", "v" * 300)] if shape == 7 else []
        body = b"" if shape == 0 else grpc(bytes([48 + b % 3]) * SIZES[b % len(SIZES)])
        stream = self.client.open(path, end=not body, extra=extra)
        plan = Plan(stream, path, body, trailers=shape == 1, expected=body, refused=path == ANSWER)
        self.plans.append(plan)
        if body:
            self._queue_body(plan, shape)

    def _queue_body(self, plan: Plan, shape: int) -> None:
        """END_STREAM on the last DATA frame, on an empty one, or on trailers."""
        stream, body = plan.stream, plan.request
        if shape == 2:
            self.client.queue(stream, body)
            self.client.queue(stream, end=True)
        elif shape == 1:
            self.client.queue(stream, body)
            self.client.queue(stream, fields=[("x-trailer", f"of {stream}")], end=True)
        else:
            self.client.queue(stream, body[:3])
            self.client.queue(stream, body[3:], end=True)

    def _plan(self, number: int) -> Plan | None:
        return self.plans[number % len(self.plans)] if self.plans else None

    def _push(self, a: int, b: int) -> None:
        plan = self._plan(a)
        if plan is None:
            return
        for end in (self.client, self.runtime):
            if plan.stream in end.streams and (b % 3 == 2 or (b % 3 == 0) == end.client):
                end.push(plan.stream)

    def _pipe(self, a: int, b: int) -> None:
        both = self.both
        [both.client_writes, both.runtime_reads, both.runtime_writes, both.client_reads][a % 4]()

    def _reply(self, a: int, b: int) -> None:
        plan = self._plan(a)
        if plan is not None:
            self.reply(plan, b)

    def reply(self, plan: Plan, b: int) -> None:
        """Let the runtime answer *plan*, if it knows it and has not yet."""
        half = self.runtime.streams.get(plan.stream)
        if half is None or half.over or plan.replied:
            return
        plan.replied = True
        plan.ended_early = not half.ended
        count = [1, 0, 1, 3][b // 8 % 4] if plan.path == EACH else [1, 0][b // 8 % 8 == 1]
        plan.replies = [bytes([48 + (b + n) % 3]) * SIZES[(b + n) % len(SIZES)] for n in range(count)]
        plan.status = 0 if plan.replies else 5
        self.runtime.queue_reply(plan.stream, *plan.replies, status=plan.status)
        self.runtime.push(plan.stream)

    def _reset(self, a: int, b: int) -> None:
        plan, end = self._plan(a), self.client if b % 3 else self.runtime
        if plan is None or plan.stream not in end.streams or end.streams[plan.stream].over:
            return
        plan.reset = plan.reset or ("client" if end.client else "runtime")
        end.reset(plan.stream)

    def _grant(self, a: int, b: int) -> None:
        end, size = (self.client, self.runtime)[a % 2], [1, 100, 10_000, 100_000][b % 4]
        plan = self._plan(a // 2)
        if b // 4 % 3 == 0 or plan is None:
            end.grant(0, min(size, 10 + end.unreturned))
            end.unreturned = max(0, end.unreturned - size)
        elif plan.stream in end.streams and not end.streams[plan.stream].over:
            end.grant(plan.stream, size)

    def _settings(self, a: int, b: int) -> None:
        end = (self.client, self.runtime)[a % 2]
        values = [{INITIAL_WINDOW: WINDOWS[b // 4 % len(WINDOWS)]}, {MAX_FRAME: [16_384, 20_000, 70_000][b // 4 % 3]}]
        values += [{TABLE_SIZE: [4_096, 0, 100, 20_000][b // 4 % 4]}, {0x99: b}]
        end.send_settings(values[b % 4])

    def _answer(self, a: int, b: int) -> None:
        if self.both.held:
            stream = sorted(self.both.held)[a % len(self.both.held)]
            self.answer(stream, b)

    def answer(self, stream: int, b: int) -> None:
        """Give a held call one of all kinds of verdicts."""
        plan = next(plan for plan in self.plans if plan.stream == stream)
        sized: Verdict = Proceed(b"n" * SIZES[b // 4 % len(SIZES)])
        verdict = (Proceed(None), sized, REFUSED, sized)[b % 4]
        if not self.both.answer(stream, verdict):
            self.late_verdicts += 1
        elif isinstance(verdict, Refuse):
            plan.refused = True
        elif verdict.message is not None:
            plan.expected = grpc(verdict.message)

    def _noise(self, a: int, b: int) -> None:
        end = (self.client, self.runtime)[a % 2]
        plan = self._plan(b)
        match b % 3:
            case 0:
                end.send(PING, 0, 0, b"pingpong")
            case 1:
                end.send(UNKNOWN_KIND, 0xFF, 0, b"what is this")
            case _ if plan and end.client:
                end.send(PRIORITY, 0, plan.stream, b"\x00\x00\x00\x00\x07")

    # -- the end ---------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let all end, those that are not held first, and check that everything was as it was meant."""
        self._open_windows()
        trailing = [plan.stream for plan in self.plans if plan.trailers and plan.stream in self.both.held]
        while trailing and self.both.held:
            self._finish(trailing)
            trailing = [plan.stream for plan in self.plans if plan.trailers and plan.stream in self.both.held]
        self._finish([])
        for plan in self.plans:
            waits = plan.stream in self.both.held
            if not waits:
                self.check(plan)
        while self.both.held:
            self._finish(list(self.both.held))
        for plan in self.plans:
            self.check(plan)
            self._check_told(plan)
        self.both.check_rest()
        self.both.check_version()
        self.both.check_rest()

    def _open_windows(self) -> None:
        """From now on both ends give window as nghttp2 does: when half of one is used up."""
        for end in (self.client, self.runtime):
            end.grants = "half"
            end.send_settings({INITIAL_WINDOW: 65_535})
            end.grant_all()
        self.both.run()
        for end in (self.client, self.runtime):
            end.grant_all()

    def _finish(self, answers: list[int]) -> None:
        for stream in answers:
            self.answer(stream, 4 * stream)
        self.both.run()
        for plan in self.plans:
            if (half := self.runtime.streams.get(plan.stream)) and half.ended:
                self.reply(plan, 2)
        self.both.run()

    def check(self, plan: Plan) -> None:
        """Both ends have got of *plan* what they should."""
        near, far = self.client.streams[plan.stream], self.runtime.streams.get(plan.stream)
        assert far is not None, f"{plan} never reached the runtime"
        assert near.over, f"{plan} hangs at the client"
        assert far.over, f"{plan} hangs at the runtime"
        assert plan.expected.startswith(bytes(far.body)), f"{plan}: the runtime got other bytes"
        if plan.refused:
            assert not far.body
            assert (far.reset, far.ended) == (8, plan.trailers)  # trailers are for HPACK's sake, without a message
            assert near.reset is not None or near.status == str(int(REFUSED.code))
            return
        if plan.reset != "runtime":  # what there is of a message that is to be edited goes on as it is before a reset
            assert plan.reply_body.startswith(bytes(near.body)), f"{plan}: the client got other bytes"
        if plan.clean:
            assert (bytes(far.body), far.ended, far.reset) == (plan.expected, True, None)
        if plan.clean or (plan.ended_early and not plan.reset):
            assert (bytes(near.body), near.ended, near.status) == (plan.reply_body, True, str(plan.status))
            assert dict(near.blocks[-1])["x-stream"] == str(plan.stream)

    def _check_told(self, plan: Plan) -> None:
        """Held at most once, ended exactly once and last, with the right outcome."""
        events = [event for event in self.both.told if event.stream == plan.stream]
        kinds = [event.kind for event in events]
        if plan.path == PASS:
            assert not events
            return
        assert kinds.count("held") <= 1
        assert kinds.count("ended") == 1
        assert kinds[-1] == "ended"
        if plan.path == EACH and plan.clean:
            assert [event.what for event in events[:-1]] == plan.replies
        if plan.clean or plan.refused:
            assert events[-1] == Told("ended", plan.stream, self._outcome(plan))

    def _outcome(self, plan: Plan) -> Outcome:
        if plan.refused:
            return Outcome(OutcomeKind.NOT_SENT)
        if not plan.replies:
            return Outcome(OutcomeKind.FAILED)
        return Outcome(OutcomeKind.OK, plan.replies[0])
