"""Events of the runtime become calls for the rules of the controller, and their verdicts answers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from google.protobuf.message import Message

from criproxy.cri import api_pb2 as cri
from criproxy.cri.touched_methods import call_paths
from criproxy.errors import StatusCode
from criproxy.nri import api_pb2 as nri
from criproxy.nri import front as front_module
from criproxy.nri import messages
from criproxy.nri.connection import CallFailed
from criproxy.nri.front import NriFront
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed, Refuse, Rule, Table, Verdict
from tests.daemons import until
from tests.nri.test_messages import POD, container

HELD = ("CreateContainer", "StartContainer", "UpdateContainerResources")
WATCHED = ("RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "StopContainer", "RemoveContainer")


@dataclass
class Rules:
    """Rules that do what a test says, and remember how calls ended."""

    verdict: Callable[[str, bytes], Verdict] = lambda name, message: Proceed()
    ended: list[tuple[str, OutcomeKind]] = field(default_factory=list)
    replies: list[bytes | None] = field(default_factory=list)

    async def hold(self, call: Call, message: bytes) -> Verdict:
        """Hold a call."""
        return self.verdict(call.method.rpartition("/")[2], message)

    def done(self, call: Call, outcome: Outcome) -> None:
        """Remember the end."""
        self.ended.append((call.method.rpartition("/")[2], outcome.kind))
        self.replies.append(outcome.reply)

    def table(self) -> Table:
        """The rules."""
        held = {call_paths("RuntimeService", name)[0]: Rule(hold=self.hold, done=self.done) for name in HELD}
        return held | {call_paths("RuntimeService", name)[0]: Rule(done=self.done) for name in WATCHED}


async def refused(call: Call, message: bytes | None, error: Exception) -> Verdict:
    """What becomes of a call whose handler failed."""
    return Refuse(StatusCode.UNAVAILABLE, f"after {error}")


def front_of(rules: Rules) -> NriFront:
    """A front with these rules."""
    front = NriFront(Path("/"))
    front.use(rules.table())
    front.on_error = refused
    return front


def pinned(name: str, message: bytes) -> Verdict:
    """Put a container on CPU 1."""
    if name != "CreateContainer":
        return Proceed()
    request = cri.CreateContainerRequest.FromString(message)
    request.config.linux.resources.cpuset_cpus = "1"
    return Proceed(request.SerializeToString())


def pinning() -> tuple[Rules, NriFront]:
    """Rules that put containers on CPU 1, and a front with them."""
    rules = Rules(pinned)
    return rules, front_of(rules)


async def create(front: NriFront) -> nri.CreateContainerResponse:
    """The answer to a create."""
    request = nri.CreateContainerRequest(pod=POD, container=container())
    return nri.CreateContainerResponse.FromString(await front.answer("CreateContainer", request.SerializeToString()))


async def tell(front: NriFront, event: nri.Event) -> None:
    """Tell of something about the container, as before 0.12."""
    change = nri.StateChangeEvent(event=event, pod=POD, container=container())
    await answered(front, "StateChange", change)


async def tell_by(front: NriFront, method: str) -> None:
    """Tell of it by a call of its own, as from 0.12 on."""
    await answered(front, method, nri.StartContainerRequest(pod=POD, container=container()))


async def answered(front: NriFront, method: str, request: Message) -> None:
    """Get an answer, after which the front looks at what it was told."""
    await front.answer(method, request.SerializeToString())
    await asyncio.sleep(0)


async def test_a_life() -> None:
    """Each call ends with the event from after it, and has the id that the runtime gave."""
    rules, front = pinning()
    await tell(front, nri.RUN_POD_SANDBOX)
    assert (await create(front)).adjust.linux.resources.cpu.cpus == "1"
    assert rules.ended == [("RunPodSandbox", OutcomeKind.OK)], "it is not created yet"
    await tell(front, nri.POST_CREATE_CONTAINER)
    await tell(front, nri.START_CONTAINER)
    await tell(front, nri.POST_START_CONTAINER)
    await tell(front, nri.STOP_POD_SANDBOX)
    await tell(front, nri.REMOVE_CONTAINER)
    await tell(front, nri.REMOVE_POD_SANDBOX)

    assert rules.ended[1:] == [
        ("CreateContainer", OutcomeKind.OK),
        ("StartContainer", OutcomeKind.OK),
        ("StopPodSandbox", OutcomeKind.OK),
        ("RemoveContainer", OutcomeKind.OK),
        ("RemovePodSandbox", OutcomeKind.OK),
    ]
    assert cri.CreateContainerResponse.FromString(rules.replies[1] or b"").container_id == "c1"


async def test_events_with_calls_of_their_own() -> None:
    """The same as within StateChange."""
    rules, front = pinning()
    await create(front)
    for method in ("RunPodSandbox", "PostCreateContainer", "StartContainer", "PostStartContainer", "RemoveContainer"):
        await tell_by(front, method)

    names = [name for name, _ in rules.ended]
    assert names == ["RunPodSandbox", "CreateContainer", "StartContainer", "RemoveContainer"]
    with pytest.raises(CallFailed) as raised:
        await tell_by(front, "ValidateContainerAdjustment")
    assert raised.value.code is StatusCode.UNIMPLEMENTED


async def test_a_create_that_failed_in_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then, it tells of a stop of a container that never was."""
    monkeypatch.setattr(front_module, "STOPPED_S", 0.0)
    rules, front = pinning()
    await create(front)
    await answered(front, "StopContainer", nri.StopContainerRequest(pod=POD, container=container()))

    assert rules.ended[0] == ("CreateContainer", OutcomeKind.FAILED)
    await until(lambda: rules.ended[1:] == [("StopContainer", OutcomeKind.UNKNOWN)])


@pytest.mark.parametrize("event", [nri.START_CONTAINER, None], ids=["start", "create"])
async def test_what_the_controller_refuses_fails(event: nri.Event | None) -> None:
    """With its sentence, which the kubelet shows; the call has not been sent as far as the controller knows."""
    rules = Rules(lambda name, message: Refuse(StatusCode.RESOURCE_EXHAUSTED, "there is no room"))
    front = front_of(rules)
    with pytest.raises(CallFailed, match="there is no room"):
        await (create(front) if event is None else tell(front, event))

    assert [kind for _, kind in rules.ended] == [OutcomeKind.NOT_SENT]


@pytest.mark.parametrize(
    ("env", "text"),
    [
        pytest.param(["BIG=" + "x" * (4 << 20)], r"described in 419\d{4} bytes", id="bytes"),
        pytest.param([f"V{number}=" for number in range(50_000)], "50003 variables", id="variables"),
    ],
)
async def test_a_create_that_would_take_too_long_to_read_fails(env: list[str], text: str) -> None:
    """Only the create, and not the connection, on which all others depend."""
    front = front_of(Rules(pinned))
    large = container()
    large.env.extend(env)
    request = nri.CreateContainerRequest(pod=POD, container=large).SerializeToString()
    with pytest.raises(CallFailed, match=text):
        await front.answer("CreateContainer", request)
    assert (await create(front)).adjust.linux.resources.cpu.cpus == "1"

    front.stats.bypass = True
    assert not await front.answer("CreateContainer", request)


async def test_a_handler_that_fails_has_its_fallback() -> None:
    """As with the proxy."""

    def fail(name: str, message: bytes) -> Verdict:
        raise RuntimeError("a defect")

    with pytest.raises(CallFailed, match="after a defect"):
        await create(front_of(Rules(fail)))


async def test_without_news_the_outcome_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some seconds, and at once when the connection ends: the runtime is asked."""
    rules, front = pinning()
    monkeypatch.setattr(front_module, "END_S", 0.01)
    await create(front)
    await until(lambda: rules.ended == [("CreateContainer", OutcomeKind.UNKNOWN)])
    monkeypatch.setattr(front_module, "END_S", 60.0)
    await tell(front, nri.START_CONTAINER)
    front.lost()

    assert rules.ended[1:] == [("StartContainer", OutcomeKind.UNKNOWN)]


async def test_what_is_told_is_looked_at_after_the_answer_and_before_the_next_question() -> None:
    """Nobody waits for what criproxy makes of it, and no decision is made without it."""
    seen: list[str] = []

    def start(name: str, message: bytes) -> Verdict:
        seen.extend([*(ended for ended, _ in rules.ended), name])
        return Proceed()

    rules = Rules(start)
    front = front_of(rules)
    remove = nri.StateChangeEvent(event=nri.REMOVE_CONTAINER, pod=POD, container=container()).SerializeToString()
    started = nri.StateChangeEvent(event=nri.START_CONTAINER, pod=POD, container=container()).SerializeToString()

    assert await front.answer("StateChange", remove) == b""
    assert rules.ended == []
    await front.answer("StateChange", started)
    assert seen == ["RemoveContainer", "StartContainer"]


async def test_an_event_at_which_criproxy_fails_is_told_of_and_hinders_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has been answered, so only criproxy itself can say so."""
    rules, front = pinning()
    failed: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context["message"]))

    def fail(config: cri.PodSandboxConfig, pod: nri.PodSandbox) -> None:
        raise RuntimeError("a defect")

    await create(front)
    monkeypatch.setattr(messages, "fill_sandbox", fail)
    for event in (nri.RUN_POD_SANDBOX, nri.POST_CREATE_CONTAINER):
        change = nri.StateChangeEvent(event=event, pod=POD, container=container())
        await front.answer("StateChange", change.SerializeToString())
    await tell(front, nri.START_CONTAINER)

    assert failed == ["criproxy failed at RunPodSandbox"]
    assert rules.ended == [("CreateContainer", OutcomeKind.OK)]


async def test_a_bypass_changes_nothing() -> None:
    """The rules are not asked."""
    rules, front = pinning()
    front.stats.bypass = True

    assert await create(front) == nri.CreateContainerResponse()
    assert rules.ended == []


async def test_updates_of_others_go_with_the_answer() -> None:
    """And count as sent when the runtime asks about something else: it has applied them before that."""
    front = front_of(Rules(pinned))
    front.blockers = lambda place: ["other"]
    creating = asyncio.create_task(create(front))
    await asyncio.sleep(0)
    linux = cri.LinuxContainerResources(cpuset_cpus="0")
    sharer = asyncio.create_task(front.update("sharer", linux))
    await asyncio.sleep(0)
    assert not creating.done(), "it waits for the one who has to leave"
    other = asyncio.create_task(front.update("other", linux))

    reply = await creating
    assert {each.container_id: each.linux.resources.cpu.cpus for each in reply.update} == {"sharer": "0", "other": "0"}
    assert not other.done()
    await tell(front, nri.POST_CREATE_CONTAINER)
    assert await sharer
    assert await other
    assert not await front.update("other", linux), "it goes by CRI"


async def test_updates_of_others_do_not_go_with_a_refusal() -> None:
    """No answer takes them along: they go by CRI, at once."""
    front, updates = front_of(Rules()), list[asyncio.Task[bool]]()

    async def hold(call: Call, message: bytes) -> Verdict:
        updates.append(asyncio.create_task(front.update("other", cri.LinuxContainerResources(cpuset_cpus="0"))))
        await asyncio.sleep(0)  # it begins
        return Refuse(StatusCode.RESOURCE_EXHAUSTED, "no room")

    front.use({call_paths("RuntimeService", "CreateContainer")[0]: Rule(hold=hold)})
    with pytest.raises(CallFailed):
        await create(front)
    async with asyncio.timeout(10):
        assert not await updates[0]


async def test_an_update_of_its_own_is_not_asked_about() -> None:
    """The controller has decided it, and waits for its end."""
    rules, front = pinning()
    linux = cri.LinuxContainerResources(cpuset_cpus="0")
    front.own.append(cri.UpdateContainerResourcesRequest(container_id="c1", linux=linux))
    for cpus in ("0", "1"):
        resources = nri.LinuxResources(cpu=nri.LinuxCPU(cpus=cpus))
        request = nri.UpdateContainerRequest(container=container(), linux_resources=resources)
        await front.answer("UpdateContainer", request.SerializeToString())
    await tell(front, nri.POST_UPDATE_CONTAINER)

    assert rules.ended == [("UpdateContainerResources", OutcomeKind.OK)], "that of the kubelet"
