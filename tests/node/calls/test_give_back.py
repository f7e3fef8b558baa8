"""Of a create that fails nothing is left: neither its place, nor a sandbox that only such creates have named."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.methods import paths
from criproxy.cri.runtime import RuntimeClient
from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.grant import Change
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.node.controller import Controller
from criproxy.placement.events import ContainerGone, PolicyChanged
from criproxy.placement.policies.static import StaticPolicy
from criproxy.simulate.hosts import machine
from criproxy.store.store import Store
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, PodSpec, container_config, sandbox_config
from tests.gates import Gate
from tests.node.world import FAST, GIB, STATIC, RecordingLog, Slow

LIMIT_S = 60.0
UNSEEN = "a-sandbox-that-was-made-during-a-bypass"
FAILED = Outcome(OutcomeKind.FAILED)
OK = Outcome(OutcomeKind.OK, api.CreateContainerResponse(container_id="id").SerializeToString())


class Held:
    """A create in the sandbox `UNSEEN`, about which the data plane asks the handlers."""

    def __init__(self, controller: Controller, name: str, cpus: int = 1) -> None:
        self._creates = controller.handlers.creates
        self._call = Call(paths("CreateContainer")[0], 1, 1, "identity")
        spec = ContainerSpec(name, IMAGE, cpu_request_milli=100)
        if cpus:
            spec = ContainerSpec(name, IMAGE, cpu_limit_milli=1000 * cpus, memory_limit_bytes=GIB)
        pod = PodSpec("pod", (spec,))
        config = container_config(pod, spec, 8 * GIB)
        self._request = api.CreateContainerRequest(
            pod_sandbox_id=UNSEEN, config=config, sandbox_config=sandbox_config(pod)
        )

    async def hold(self) -> CpuSet:
        """The CPUs with which the create goes on."""
        verdict = await self._creates.hold(self._call, self._request.SerializeToString())
        assert isinstance(verdict, Proceed)
        assert verdict.message is not None
        sent = api.CreateContainerRequest.FromString(verdict.message)
        return parse_cpuset(sent.config.linux.resources.cpuset_cpus)

    def ends(self, outcome: Outcome) -> None:
        """The runtime has answered, or the call was refused."""
        self._creates.done(self._call, outcome)


class Blocked(StaticPolicy):
    """Places those who are here already when it may: says when it has begun."""

    def __init__(self) -> None:
        super().__init__(STATIC.options)
        self.begun, self.go_on = threading.Event(), Gate()

    def place(self, node: Node, container: Container) -> Change:
        """Wait until it may go on."""
        if container.key in node.grants:
            self.begun.set()
            assert self.go_on.wait(LIMIT_S)
        return super().place(node, container)


@pytest.fixture
async def controller(tmp_path: Path, slow: Slow) -> AsyncIterator[Controller]:
    """One with four CPUs, one of them reserved. Nobody starts it, so that no comparison of lists sees a sandbox."""
    runtime = EmbeddedRuntime(tmp_path / "runtime.sock", RuntimeOptions(latency_s=slow, host_root=tmp_path))
    await runtime.start()
    client, topology = RuntimeClient(f"unix://{runtime.path}"), machine(nodes=1, cores=4, threads=1)
    with closing(Store(tmp_path / "state")) as store:
        made = Controller(FAST, topology, STATIC, store, client, RecordingLog())
        async with asyncio.timeout(LIMIT_S):
            yield made
        await made.stop()
    await runtime.stop()


async def begun(controller: Controller) -> Blocked:
    """A policy that is about to place everybody anew, in a thread: what is submitted from now on waits for it."""
    policy = Blocked()
    controller.context.state.submit(PolicyChanged(apply_all=True), policy)
    assert await asyncio.to_thread(policy.begun.wait, LIMIT_S)
    return policy


async def waits(one: Held) -> "asyncio.Task[CpuSet]":
    """A create that has come as far as it can while everybody is placed anew."""
    holding = asyncio.create_task(one.hold())
    for _ in range(20):  # turns of the loop: nothing before that waits for anybody else
        await asyncio.sleep(0)
    assert not holding.done()
    return holding


def reserved(controller: Controller) -> list[CpuSet]:
    """The CPUs of the containers that are being created in the sandbox `UNSEEN`."""
    node = controller.node
    return [node.grants[each.key].cpus for each in node.containers_of(UNSEEN)]


async def test_a_create_that_is_decided_later_keeps_its_place_where_one_fails(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that fails had named the sandbox first; the other waits for a policy that places everybody anew."""
    monkeypatch.setattr("criproxy.node.record.state.MANY", 0)
    failing, waiting = Held(controller, "failing", cpus=0), Held(controller, "waiting", cpus=0)
    await failing.hold()
    policy = await begun(controller)

    holding = await waits(waiting)
    failing.ends(FAILED)
    policy.go_on.set()
    cpus = await holding
    await controller.context.state.settled()

    assert (reserved(controller), UNSEEN in controller.node.pods) == ([cpus], True)
    waiting.ends(FAILED)
    assert (reserved(controller), UNSEEN in controller.node.pods) == ([], False)


async def test_a_create_that_comes_while_its_sandbox_is_forgotten_names_it_again(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the sandbox is forgotten waits for the policy, too: until then it is known."""
    monkeypatch.setattr("criproxy.node.record.state.MANY", 0)
    failing, late = Held(controller, "failing"), Held(controller, "late")
    await failing.hold()
    policy = await begun(controller)

    failing.ends(FAILED)
    holding = await waits(late)
    policy.go_on.set()
    cpus = await holding

    assert (reserved(controller), UNSEEN in controller.node.pods) == ([cpus], True)


async def test_a_create_that_asks_the_runtime_for_room_keeps_its_sandbox(controller: Controller, slow: Slow) -> None:
    """One that had all CPUs fails meanwhile: the other gets them, by the annotations of its pod."""
    failing, waiting = Held(controller, "failing", cpus=3), Held(controller, "waiting", cpus=3)
    await failing.hold()
    slow["ListContainers"] = 0.01
    slow.asked.clear()

    holding = asyncio.create_task(waiting.hold())
    await slow.asked.wait()
    failing.ends(FAILED)

    assert await holding == {1, 2, 3}
    assert (reserved(controller), UNSEEN in controller.node.pods) == ([frozenset({1, 2, 3})], True)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_nothing_is_left_where_all_creates_of_a_sandbox_fail(
    controller: Controller, order: Sequence[int]
) -> None:
    """Whichever of them has named it first."""
    both = Held(controller, "first"), Held(controller, "second")
    for one in both:
        await one.hold()

    for index in order:
        assert UNSEEN in controller.node.pods
        both[index].ends(FAILED)

    node = controller.node
    assert (dict(node.pods), dict(node.containers), dict(node.grants)) == ({}, {}, {})


async def test_a_sandbox_in_which_a_container_was_made_stays(controller: Controller) -> None:
    """Also where that has gone when another create fails, which had named the sandbox."""
    failing, made = Held(controller, "failing"), Held(controller, "made")
    await failing.hold()
    await made.hold()
    made.ends(OK)
    await controller.context.state.apply(ContainerGone("id"))

    failing.ends(FAILED)

    assert UNSEEN in controller.node.pods
    assert not controller.node.containers
