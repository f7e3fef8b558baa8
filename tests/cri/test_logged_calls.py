"""Tracing calls around the handlers that are there anyway."""

from typing import Any

import pytest

from criproxy.cri import api_pb2
from criproxy.cri.logged_calls import LIMIT_CHARS, resolve, traced
from criproxy.errors import StatusCode, UsageError
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed, Refuse, Rule, Table, Verdict

CREATE = "/runtime.v1.RuntimeService/CreateContainer"
LIST = "/runtime.v1.RuntimeService/ListContainers"
EVENTS = "/runtime.v1.RuntimeService/GetContainerEvents"


class Lines(list[dict[str, Any]]):
    """What was traced."""

    def write(self, event: str, **keys: object) -> None:
        """Stand in for a logger's method."""
        self.append({"event": event, **keys})


@pytest.fixture
def lines() -> Lines:
    """Return what will be traced."""
    return Lines()


def call_of(method: str, request: bytes | None) -> Call:
    """A call as the wire makes it."""
    call = Call(method, connection=3, stream=5, encoding="identity")
    call.request = request
    return call


def rule_of(path: str, lines: Lines, table: Table) -> Any:  # noqa: ANN401 (a Rule with the handlers that the test calls)
    """The rule with which calls are traced."""
    return traced(table, frozenset([path]), lines.write)[path]


def test_names_are_short_full_or_all() -> None:
    """A short name means both packages, a path itself, and a star everything."""
    assert resolve(["CreateContainer"]) == {CREATE, CREATE.replace("v1", "v1alpha2")}
    assert resolve([LIST]) == {LIST}
    assert len(resolve(["*"])) > 60
    assert resolve([]) == frozenset()


def test_a_mistyped_name_gets_the_nearest_one() -> None:
    """The user is told what was meant."""
    with pytest.raises(UsageError, match="no method 'CreateContaner'; did you mean CreateContainer\\?"):
        resolve(["CreateContaner"])


async def test_a_held_call_is_told_with_what_was_sent() -> None:
    """Request, changed request, reply, outcome and time are in one line; the handlers see what they saw before."""
    lines, ends = Lines(), []
    request = api_pb2.CreateContainerRequest(pod_sandbox_id="p")
    grown = api_pb2.CreateContainerRequest(pod_sandbox_id="grown")
    reply = api_pb2.CreateContainerResponse(container_id="c")

    async def hold(_call: Call, message: bytes) -> Verdict:
        assert message == request.SerializeToString()
        return Proceed(grown.SerializeToString())

    table = {CREATE: Rule(hold=hold, done=lambda call, outcome: ends.append((call, outcome)))}
    rule = rule_of(CREATE, lines, table)
    call = call_of(CREATE, request.SerializeToString())
    outcome = Outcome(OutcomeKind.OK, reply.SerializeToString())

    assert await rule.hold(call, request.SerializeToString()) == Proceed(grown.SerializeToString())
    rule.done(call, outcome)

    (line,) = lines
    assert ends == [(call, outcome)]
    assert 0 <= line.pop("duration_s") < 5
    assert line == {
        "event": "call",
        "method": CREATE,
        "connection": 3,
        "stream": 5,
        "outcome": "ok",
        "request": {"pod_sandbox_id": "p"},
        "sent": {"pod_sandbox_id": "grown"},
        "reply": {"container_id": "c"},
    }


async def test_a_refusal_is_told_with_its_reason(lines: Lines) -> None:
    """The status and the sentence that the kubelet got are in the line."""

    async def hold(_call: Call, _message: bytes) -> Verdict:
        return Refuse(StatusCode.RESOURCE_EXHAUSTED, "no CPU is free")

    rule = rule_of(CREATE, lines, {CREATE: Rule(hold=hold)})
    call = call_of(CREATE, b"")

    await rule.hold(call, b"")
    rule.done(call, Outcome(OutcomeKind.NOT_SENT))

    assert (lines[0]["refused"], lines[0]["reason"]) == ("RESOURCE_EXHAUSTED", "no CPU is free")
    assert lines[0]["outcome"] == "not sent"


def test_a_call_that_passes_is_watched() -> None:
    """A method without a rule gets one that only looks; other methods keep theirs."""
    other = Rule()
    table = traced({EVENTS: other}, frozenset([LIST]), Lines().write)

    assert table[LIST].way == "watch"
    assert table[EVENTS] is other


def test_a_stream_is_told_message_by_message() -> None:
    """Each event is a line as it passes, and the end is one."""
    lines, seen = Lines(), []
    inner = Rule(each=lambda _call, message: seen.append(message))
    rule = rule_of(EVENTS, lines, {EVENTS: inner})
    event = api_pb2.ContainerEventResponse(container_id="c").SerializeToString()
    call = call_of(EVENTS, b"")

    rule.each(call, event)
    rule.each(call, event)
    rule.done(call, Outcome(OutcomeKind.UNKNOWN, event))

    assert seen == [event, event]
    assert [line["event"] for line in lines] == ["call message", "call message", "call"]
    assert lines[0]["reply"] == {"container_id": "c"}
    assert "reply" not in lines[2]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        pytest.param(None, "<unreadable or too large>", id="not-copied"),
        pytest.param(b"\xffsecret", "<7 bytes that are no ListContainersRequest>", id="no-protobuf"),
        pytest.param(b"", {}, id="empty"),
    ],
)
def test_what_cannot_be_read_is_not_shown(lines: Lines, data: bytes | None, shown: object) -> None:
    """A message that is none gives its size, never its bytes."""
    rule_of(LIST, lines, {}).done(call_of(LIST, data), Outcome(OutcomeKind.FAILED))

    assert lines[0]["request"] == shown


def test_a_long_message_is_cut(lines: Lines) -> None:
    """A list of a thousand containers does not fill the journal."""
    reply = api_pb2.ListContainersResponse(containers=[api_pb2.Container(id="x" * 64)] * 1_000)

    rule_of(LIST, lines, {}).done(call_of(LIST, b""), Outcome(OutcomeKind.OK, reply.SerializeToString()))

    assert len(lines[0]["reply"]) < LIMIT_CHARS + 50
    assert lines[0]["reply"].endswith(" characters more")
