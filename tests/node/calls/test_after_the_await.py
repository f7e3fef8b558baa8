"""What a held create writes into its message is true when it goes on, whatever happened while it waited."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.devices.evidence.evidence import Known, Subject
from criproxy.errors import StatusCode
from criproxy.model.grant import Change, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.node.bypass import BypassMode
from criproxy.node.calls.create import Creates
from criproxy.node.record import state
from criproxy.node.record.persister import Persister
from criproxy.placement.decision import Decision
from criproxy.placement.events import ContainerCreating, Event, TopologyChanged
from tests.node.devices.test_guard import RULES, Podresources, host, knows
from tests.node.test_bypassed_calls import Fragile, Placing
from tests.node.world import FAST, STATIC, owner, refusal, sharer


class FragileForOne(Fragile):
    """Fails at the pod ``late`` alone."""

    def place(self, node: Node, container: Container) -> Change:
        """Fail, or place."""
        self.broken = container.pod_name == "late"
        return super().place(node, container)


class SecondTime(Podresources):
    """Does not answer at the second question about the pod ``late`` until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = 0
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def known(self, container: Subject) -> Known | None:
        """Nothing was given to any container."""
        if container.pod == "late":
            self.questions += 1
            if self.questions == 2:
                self.asked.set()
                await self.may_answer.wait()
        return await super().known(container)


ROOM = [pytest.param(2, "0,3", id="fewer"), pytest.param(0, "0-3", id="as-before")]


@pytest.mark.parametrize(("taken", "sent"), ROOM)
async def test_a_create_at_which_the_policy_failed_shares_what_is_shared_when_it_goes_on(
    tmp_path: Path, taken: int, sent: str
) -> None:
    """An owner that comes while the rule about devices is asked has its CPUs alone from the create on."""
    host(tmp_path)
    source, settings = SecondTime(), replace(FAST, devices=RULES)
    async with Placing(tmp_path, settings, policy=FragileForOne(STATIC.options)) as world:
        knows(world, source)
        pod = sharer("late")
        sandbox_id = await world.kubelet.run_sandbox(pod)
        creating = asyncio.create_task(world.kubelet.create(pod, sandbox_id, pod.containers[0]))
        await source.asked.wait()
        if taken:
            await world.run(owner("owner", taken))
        source.may_answer.set()

        status = (await world.direct.container_status(await creating)).status
        assert status.resources.linux.cpuset_cpus == sent


async def test_a_create_that_finds_every_cpu_exclusive_by_then_is_refused(tmp_path: Path) -> None:
    """An empty cpuset would mean every CPU."""
    host(tmp_path)
    source, settings = SecondTime(), replace(FAST, devices=RULES)
    async with Placing(tmp_path, settings, policy=FragileForOne(STATIC.options)) as world:
        knows(world, source)
        owned = await world.run(owner("owner"))
        pod = sharer("late")
        sandbox_id = await world.kubelet.run_sandbox(pod)
        creating = asyncio.create_task(world.kubelet.create(pod, sandbox_id, pod.containers[0]))
        await source.asked.wait()
        node = world.controller.node
        everything = Grant(node.topology.cpus, node.topology.mems, node.topology.cpus)
        world.controller.context.state.node = node.replace(grants={**node.grants, owned: everything})
        source.may_answer.set()

        assert (await refusal(creating)).code is StatusCode.RESOURCE_EXHAUSTED


async def test_an_exclusive_place_is_stored_though_a_bypass_begins_just_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is how it was decided, not what is switched on when its call goes on."""
    place, durable, stored = Creates._place, Persister.durable, list[str]()

    async def behind_another(creates: Creates, container: Container) -> Decision:
        creates.context.state.submit(TopologyChanged(creates.context.state.node.topology))
        return await place(creates, container)

    async def noted(persister: Persister, own: str = "") -> None:
        stored.append(own)
        await durable(persister, own)

    monkeypatch.setattr(state, "MANY", 0)
    async with Placing(tmp_path) as world:
        await world.run(sharer("shared"))
        await world.rested()
        monkeypatch.setattr(Creates, "_place", behind_another)
        monkeypatch.setattr(Persister, "durable", noted)
        follow = world.controller.context.state.on_decided
        assert follow is not None

        def bypassing(event: Event, node: Node, done: "asyncio.Future[Decision]") -> None:
            if isinstance(event, ContainerCreating):
                world.bypass.set(BypassMode.AUTOMATIC, "for the test")
            follow(event, node, done)

        world.controller.context.state.on_decided = bypassing

        owned = await world.run(owner("owner"))

        assert world.cpus(owned) == "1"
        assert any(key.startswith("r-") for key in stored)
