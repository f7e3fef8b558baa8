"""The Node object beside others that write to it, and beside API servers that fail."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from criproxy.agent.kubernetes.client import NODES
from criproxy.agent.signs.wanted import ANNOTATION, Condition
from criproxy.api.views.devices import Inventory
from criproxy.devices.holdings import Holdings
from lab.apiserver.faults import Refuses
from lab.apiserver.server import ApiServer
from tests.agent.parts import until_said
from tests.agent.signs.test_wanted import LABELS, with_labels
from tests.agent.signs.world import NAME, QUICK, TAINT, NodeWorld, says, view
from tests.agent.views import view_of

OTHER = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
STEADY = replace(QUICK, grace_s=3600.0)


@pytest.fixture
def world(apiserver: ApiServer) -> NodeWorld:
    """An API server, still without the Node."""
    return NodeWorld(apiserver)


async def test_the_startup_taint_goes_once_all_is_well(world: NodeWorld) -> None:
    """Not before the kubelet goes through criproxy; the condition says why; nobody's taint is touched."""
    world.create(taints=[OTHER, TAINT])
    says(world.view, kubelet={"last_call": None, "last_call_s": None, "through": False})
    async with world.agent():
        await world.server.until(lambda: world.status() == "False")
        assert world.taints == [OTHER, TAINT]

        says(world.view)
        await world.server.until(lambda: world.taints == [OTHER])
        await world.server.until(lambda: world.status() == "True")
    assert [each["type"] for each in world.node["status"]["conditions"]] == ["Ready", "CriproxyReady"]


async def test_the_taint_does_not_come_back(world: NodeWorld) -> None:
    """A node whose pods run is not closed because criproxy has a problem."""
    world.create(taints=[TAINT])
    async with world.agent():
        await world.server.until(lambda: world.taints == [])
        says(world.view, ready="the disk fails")
        await world.server.until(lambda: world.status() == "False")
    assert world.taints == []


async def test_the_taint_stays_if_nobody_wants_it_removed(world: NodeWorld) -> None:
    """With --no-taint."""
    world.create(taints=[TAINT])
    async with world.agent(replace(QUICK, taint=False)):
        await world.server.until(lambda: world.status() == "True")
    assert world.taints == [TAINT]


async def test_no_other_taint_is_lost(world: NodeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program sets one between our read and our write, again and again: we begin anew each time."""
    world.create(taints=[TAINT])
    update, left = world.server.objects.update, [3]

    def racing(resource: Any, name: str, namespace: str, change: Any, **more: Any) -> Any:  # noqa: ANN401
        if more["manager"] == "criproxy-agent" and more["subresource"] == "" and left[0]:
            left[0] -= 1
            taint = {"key": f"drain-{left[0]}", "effect": "NoSchedule"}
            add = lambda node: {**node, "spec": {"taints": [*node["spec"]["taints"], taint]}}  # noqa: E731
            update(resource, name, namespace, add, manager="other")
        return update(resource, name, namespace, change, **more)

    monkeypatch.setattr(world.server.objects, "update", racing)
    async with world.agent():
        await world.server.until(lambda: TAINT not in world.taints)
    assert {each["key"] for each in world.taints} == {"drain-0", "drain-1", "drain-2"}


async def test_two_agents_of_one_name(world: NodeWorld) -> None:
    """They write the same, and do not answer each other's writes."""
    world.create(taints=[OTHER, TAINT])
    says(world.view, devices=with_labels(LABELS))
    async with world.agent(), world.agent():
        await world.server.until(lambda: LABELS.items() <= world.node["metadata"]["labels"].items())
        await world.server.until(lambda: world.taints == [OTHER] and world.status() == "True")
        await settled(world)
        before = world.server.requests["patch", "nodes"]
        await asyncio.sleep(0.2)
        assert world.server.requests["patch", "nodes"] == before <= 8


async def settled(world: NodeWorld) -> None:
    """Return when no request has come for a while."""
    seen = -1
    while (now := world.server.requests.total()) != seen:
        seen = now
        await asyncio.sleep(0.15)


async def test_an_unchanged_condition_is_written_rarely(world: NodeWorld) -> None:
    """Also after a restart of the agent: once at the start, then as a heartbeat, without another time of change."""
    world.create()
    async with world.agent():
        await world.server.until(lambda: world.status() == "True")
    assert world.condition is not None
    old = {**world.condition, "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    put_condition(world, old)

    async with world.agent(replace(QUICK, heartbeat_s=0.05)):
        await world.server.until(lambda: world.server.requests["patch", "nodes"] >= 4)
    assert world.condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert world.condition["lastHeartbeatTime"] > "2026-01-01T00:00:00Z"
    before = world.server.requests["patch", "nodes"]
    async with world.agent():
        await world.server.until(lambda: world.server.requests["patch", "nodes"] > before)
        await settled(world)
    assert world.server.requests["patch", "nodes"] == before + 1


def put_condition(world: NodeWorld, condition: dict[str, Any]) -> None:
    """Put a condition of ours into the Node."""
    body = {**world.node["status"], "conditions": [condition]}
    world.server.objects.update(NODES, NAME, "", lambda node: {**node, "status": body}, subresource="status")


async def test_a_restart_of_the_daemon_is_no_change(world: NodeWorld) -> None:
    """Neither a daemon that is gone for a moment nor one that the kubelet has not called yet changes the condition."""
    world.create()
    said = list[Condition]()
    async with world.agent(STEADY) as signs:
        signs.transitioned = said.append
        await world.server.until(lambda: world.status() == "True")
        says(world.view, problem="no daemon answers")
        await settled(world)
        says(world.view, kubelet={"last_call": None, "last_call_s": None, "through": False})
        await settled(world)
        assert world.status() == "True"
        says(world.view, bypass={"bypass": True, "mode": "ordered", "since": "", "reason": "for a test"})
        await world.server.until(lambda: world.status() == "False")
        await settled(world)
    assert [each.reason for each in said] == ["CriproxyReady", "Bypassed"]


async def test_a_daemon_that_stays_away_makes_the_condition_unknown(world: NodeWorld) -> None:
    """With the reason, which is the only thing that others learn of it."""
    world.create(taints=[TAINT])
    world.view = view({})
    says(world.view, problem="no daemon answers on /run/criproxy/control.sock: No such file or directory")
    async with world.agent():
        await world.server.until(lambda: world.status() == "Unknown")
    assert world.condition is not None
    assert "no daemon answers on /run/criproxy/control.sock" in world.condition["message"]
    assert world.taints == [TAINT]


async def test_inventory_and_labels_follow_the_device_plugin(world: NodeWorld) -> None:
    """They change with it, stay while it is silent, and go when somebody has ended it; other labels stay."""
    world.create()
    says(world.view, devices=with_labels(LABELS))
    async with world.agent():
        await world.server.until(lambda: LABELS.items() <= world.node["metadata"]["labels"].items())
        assert '"free":4' in world.node["metadata"]["annotations"][ANNOTATION]

        fewer = {"nvidia.com/gpu.count": "1"}
        says(world.view, devices=with_labels(fewer))
        await world.server.until(lambda: world.node["metadata"]["labels"] == {"a": "b", **fewer})
        says(world.view, devices=Inventory(stocks={}, holdings=Holdings()))
        await settled(world)
    assert world.node["metadata"]["labels"] == {"a": "b", **fewer}

    says(world.view, devices=Inventory(stocks={}, holdings=Holdings(), ended=True))
    async with world.agent():  # another run of the agent knows what the one before has written
        await world.server.until(lambda: world.node["metadata"]["labels"] == {"a": "b"})
    assert ANNOTATION not in world.node["metadata"].get("annotations", {})


async def test_a_node_without_cards_costs_no_write(world: NodeWorld) -> None:
    """Nothing is applied to a Node about which there is nothing to say."""
    world.create()
    async with world.agent():
        await world.server.until(lambda: world.status() == "True")
        await settled(world)
    assert world.server.requests["patch", "nodes"] == 1


async def test_labels_of_others_are_not_fought(world: NodeWorld) -> None:
    """It is said who has them; the inventory is written all the same, and the labels when they are free."""
    world.create()
    theirs = {"metadata": {"name": NAME, "labels": {"nvidia.com/gpu.count": "7"}}}
    world.server.objects.apply(NODES, theirs, manager="gpu-feature-discovery")
    says(world.view, devices=with_labels(LABELS))
    async with world.agent():
        await world.server.until(lambda: ANNOTATION in world.node["metadata"].get("annotations", {}))
        assert world.node["metadata"]["labels"] == {"a": "b", "nvidia.com/gpu.count": "7"}
        (said,) = world.troubles.sentences(wrong=False)
        assert 'conflict with "gpu-feature-discovery": .metadata.labels.nvidia.com/gpu.count' in said

        says(world.view, devices=with_labels({}))
        await until_said(world.troubles)
        says(world.view, devices=with_labels(LABELS))
        await until_said(world.troubles, "gpu-feature-discovery")
        nothing = {"metadata": {"name": NAME}}
        world.server.objects.apply(NODES, nothing, manager="gpu-feature-discovery")
        await world.server.until(lambda: LABELS.items() <= world.node["metadata"]["labels"].items())
        await until_said(world.troubles)


async def test_what_somebody_removes_is_written_again(world: NodeWorld) -> None:
    """After a while: within a minute what should be there is there."""
    world.create()
    says(world.view, devices=with_labels(LABELS))
    async with world.agent():
        await world.server.until(lambda: LABELS.items() <= world.node["metadata"]["labels"].items())
        without = {**world.node["metadata"], "labels": {"a": "b"}}
        world.server.objects.update(NODES, NAME, "", lambda node: {**node, "metadata": without}, manager="kubectl")
        await world.server.until(lambda: LABELS.items() <= world.node["metadata"]["labels"].items())


@pytest.mark.parametrize("what", ["get", "patch"])
async def test_what_is_forbidden_is_said_and_tried_rarely(world: NodeWorld, what: str) -> None:
    """On the node; once it is allowed, it is done."""
    world.create(taints=[TAINT])
    world.server.faults.refuses[what, "nodes"] = Refuses(403, "nodes is forbidden", "Forbidden")
    async with world.agent():
        await world.server.until(lambda: world.server.requests[what, "nodes"] >= 3)
        await until_said(world.troubles, "nodes is forbidden")
        assert world.status() == ""
        world.server.faults.refuses.clear()
        await world.server.until(lambda: world.status() == "True" and world.taints == [])
        await until_said(world.troubles)


async def test_a_server_that_is_gone(world: NodeWorld) -> None:
    """Few tries while it is gone; what should be there is there when it is back."""
    world.create(taints=[TAINT])
    says(world.view, ready="the disk fails")
    async with world.agent():
        await world.server.until(lambda: world.status() == "False")
        await world.server.stop()
        for number in range(50):
            says(world.view, ready=f"the disk fails for the {number}th time")
            await asyncio.sleep(0.002)
        says(world.view)
        await world.server.start()
        await world.server.until(lambda: world.status() == "True" and world.taints == [])
        await until_said(world.troubles)
    assert world.server.requests["patch", "nodes"] <= 6


async def test_a_wiped_server(world: NodeWorld) -> None:
    """No Node is made by us; when the kubelet has made it anew, everything is written again."""
    world.create()
    says(world.view, devices=with_labels(LABELS))
    async with world.agent():
        await world.server.until(lambda: LABELS.items() <= world.node["metadata"]["labels"].items())
        world.server.objects.wipe()
        await until_said(world.troubles, "has no Node worker-1")
        await settled(world)
        assert world.server.objects.all(NODES) == []

        world.create(taints=[TAINT])
        await world.server.until(lambda: world.taints == [] and world.status() == "True")
        await world.server.until(lambda: LABELS.items() <= world.node["metadata"]["labels"].items())
        await until_said(world.troubles)


async def test_a_message_that_changes_often_is_written_rarely(world: NodeWorld) -> None:
    """A sentence with a number in it does not become a stream of writes."""
    world.create()
    async with world.agent():
        await world.server.until(lambda: world.status() == "True")
        for number in range(20):
            says(world.view, ready=f"{number} containers are misplaced")
            await asyncio.sleep(0.01)
        await world.server.until(lambda: world.status() == "False")
        await settled(world)
    assert world.server.requests["patch", "nodes"] <= 3
    assert view_of()["ready"] == ""
