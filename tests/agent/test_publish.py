"""Objects that the agent writes: when, as whose, and what becomes of them when the API server or the daemon fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from criproxy.agent.changes import Changes
from criproxy.agent.kubernetes.client import NODE_PLACEMENTS, NODE_RESOURCE_TOPOLOGIES, NODES, ApiClient, Resource
from criproxy.agent.kubernetes.watch import Watched
from criproxy.agent.node_view import NodeView
from criproxy.agent.objects.placement import RolloutState
from criproxy.agent.publish import Pace, Publisher, placement_publisher, topology_publisher
from criproxy.agent.troubles import Troubles
from criproxy.process.log import structlog
from lab.apiserver.faults import Refuses
from lab.apiserver.objects import Refusal
from lab.apiserver.server import ApiServer
from tests.agent.parts import until, until_said
from tests.agent.views import WEB, gpus, planned, view_of

NAME = "worker-1"
FAST = Pace(
    settle_s=(0.0, 0.01),
    least_s=0.02,
    refresh_s=1000.0,
    silent_s=0.0,
    look_s=0.02,
    first_pause_s=0.01,
    longest_pause_s=0.05,
)
LEAST_S = 0.1


class State(Changes):
    """How far a NodePolicy has come: what the rollout says in these tests."""

    def __init__(self) -> None:
        super().__init__()
        self.state: RolloutState | None = RolloutState()

    def become(self, state: RolloutState | None) -> None:
        """Say that it has come this far."""
        self.state = state
        self.notify()


class Rig:
    """A node's parts that write objects, and an API server; the daemon says what a test sets."""

    def __init__(self, server: ApiServer, client: ApiClient) -> None:
        self.server, self.client = server, client
        self.troubles = Troubles(structlog.get_logger("tests"))
        self.view = NodeView("/nonexistent", NAME, self.troubles)
        self.node = Watched(client, NODES, name=NAME, metadata_only=True)
        self.placement = Watched(client, NODE_PLACEMENTS, name=NAME)
        self.topology = Watched(client, NODE_RESOURCE_TOPOLOGIES, name=NAME, metadata_only=True)
        self.rollout = State()
        self._tasks: list[asyncio.Task[None]] = []
        server.objects.create(NODES, {"metadata": {"name": NAME}})

    def says(self, view: dict[str, Any] | None = None, problem: str = "") -> None:
        """Let the daemon answer with *view*, or not answer because of *problem*."""
        self.view.last, self.view.problem = view or self.view.last, problem
        self.view.notify()

    def start(self, *publishers: Publisher) -> None:
        """Run *publishers*, and follow the objects."""
        parts: list[Watched | Publisher] = [self.node, self.placement, self.topology, *publishers]
        for each in parts:
            self._tasks.append(asyncio.create_task(each.run()))

    async def stop(self) -> None:
        """End everything that runs."""
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def places(self, pace: Pace = FAST) -> Publisher:
        """Return what writes the NodePlacement."""
        parts = (self.client, self.view, self.node, self.placement, self.rollout, self.troubles)
        return placement_publisher(*parts, pace=pace)  # type: ignore[arg-type]

    def maps(self) -> Publisher:
        """Return what writes the NodeResourceTopology."""
        return topology_publisher(self.client, self.view, self.node, self.topology, self.troubles, pace=FAST)

    def has(self, resource: Resource = NODE_PLACEMENTS) -> dict[str, Any] | None:
        """Return what the API server has."""
        with suppress(Refusal):
            return self.server.objects.get(resource, NAME)
        return None

    def status(self) -> dict[str, Any]:
        """Return the status of the NodePlacement; empty if there is none."""
        return (self.has() or {}).get("status") or {}

    def edit(self, **changes: str) -> None:
        """Change the status as another program does."""
        status = {"status": self.status() | changes}
        self.server.objects.update(NODE_PLACEMENTS, NAME, "", lambda old: old | status, subresource="status")

    def owner(self, resource: Resource = NODE_PLACEMENTS) -> str:
        """Return the uid of the owner of an object."""
        (owner,) = (self.has(resource) or {"metadata": {"ownerReferences": [{"uid": ""}]}})["metadata"][
            "ownerReferences"
        ]
        return str(owner["uid"])

    def renew_node(self) -> str:
        """Create the Node anew; return its uid."""
        with suppress(Refusal):
            self.server.objects.delete(NODES, NAME)
        return str(self.server.objects.create(NODES, {"metadata": {"name": NAME}})["metadata"]["uid"])

    async def written(self, *watches: Watched) -> None:
        """Return once the agent has seen what it has written."""
        for each in watches:
            await until(each, lambda: (seen := each.objects.get(NAME)) and (each is self.topology or "status" in seen))  # noqa: B023


@pytest.fixture
async def rig(apiserver: ApiServer, api_client: ApiClient) -> AsyncIterator[Rig]:
    """Return a node whose daemon has answered."""
    rig = Rig(apiserver, api_client)
    rig.says(view_of())
    yield rig
    await rig.stop()


def writes(rig: Rig, resource: Resource = NODE_PLACEMENTS) -> int:
    """Return how often an object was written."""
    return rig.server.requests["patch", resource.plural]


async def test_a_placement_is_written_once(rig: Rig) -> None:
    """With the Node as its owner; a daemon that says the same again, or another time, causes no request."""
    rig.start(rig.places())
    await rig.server.until(lambda: rig.status().get("phase") == "Applied")

    for second in range(5):
        rig.says(
            view_of(time=f"2026-11-30T00:00:0{second}.000Z", kubelet={"last_call": f"2026-11-30T00:00:0{second}Z"})
        )
        await asyncio.sleep(0.05)
    assert writes(rig) == 2  # the object, and its status
    assert rig.owner() == rig.server.objects.get(NODES, NAME)["metadata"]["uid"]
    assert rig.status()["observedAt"]
    assert rig.troubles.sentences() == []


async def test_a_change_is_written(rig: Rig) -> None:
    """Of the node, and of the rollout; then only the status is written."""
    rig.start(rig.places())
    await rig.server.until(lambda: rig.status().get("cpus", {}).get("exclusive") == 2)

    rig.says(view_of(planned(containers=[WEB])))
    await rig.server.until(lambda: rig.status()["cpus"]["exclusive"] == 0)
    rig.rollout.become(RolloutState("gpu", 1, "0123456789ab", "Trying"))
    await rig.server.until(lambda: rig.status()["phase"] == "Trying")

    assert [each.subresource for each in rig.server.asked if each.verb == "patch"] == ["", "status", "status", "status"]


async def test_what_the_agent_finds_wrong_is_a_problem_of_the_node(rig: Rig) -> None:
    """As in `status --check`: what the agent has told the daemon of is not in the daemon's answer to it."""
    text = "NodePolicy gpu cannot be used on this node: line 1: no"
    rig.start(rig.places())
    await rig.server.until(lambda: rig.status().get("ready") == "True")

    rig.troubles.set("rollout", text, wrong=True)
    rig.troubles.set("node", "the Node cannot be read")
    await rig.server.until(lambda: rig.status()["ready"] == "False")
    assert rig.status()["problems"] == [text]

    rig.troubles.set("rollout", "")
    await rig.server.until(lambda: rig.status()["ready"] == "True")
    assert rig.status()["problems"] == []


async def test_many_changes_are_few_writes(rig: Rig) -> None:
    """However often the node changes, there is a pause between two writes; the last state is written."""
    rig.start(rig.places(Pace(settle_s=(0.0, 0.01), least_s=LEAST_S)))
    await rig.server.until(lambda: writes(rig) >= 2)
    loop, changes, view = asyncio.get_running_loop(), 0, view_of()
    begun_s, before = loop.time(), writes(rig)

    while writes(rig) < before + 6:
        changes += 1
        rig.says(view | {"released": str(changes)})
        await asyncio.sleep(0.001)
    took_s = loop.time() - begun_s
    rig.says(view_of(released="last"))
    await rig.server.until(lambda: rig.status().get("message") == "last")

    assert took_s >= 5 * LEAST_S
    assert changes > 3 * 6


async def test_without_a_change_it_is_written_now_and_then(rig: Rig) -> None:
    """Whoever looks sees that the node still reports."""
    rig.start(rig.places(Pace(settle_s=(0.0, 0.0), least_s=0.01, refresh_s=0.1)))

    await rig.server.until(lambda: writes(rig) >= 5)

    assert [each.subresource for each in rig.server.asked if each.verb == "patch"].count("") == 1


async def test_what_was_lost_comes_back(rig: Rig) -> None:
    """Somebody deletes the object, or changes it."""
    rig.start(rig.places(), rig.maps())
    await rig.written(rig.placement, rig.topology)

    rig.server.objects.delete(NODE_PLACEMENTS, NAME)
    rig.server.objects.delete(NODE_RESOURCE_TOPOLOGIES, NAME)
    await rig.server.until(lambda: bool(rig.status()) and rig.has(NODE_RESOURCE_TOPOLOGIES) is not None)
    await rig.written(rig.placement, rig.topology)

    rig.edit(phase="Released")
    assert rig.status()["phase"] == "Released"
    await rig.server.until(lambda: rig.status().get("phase") == "Applied")


async def test_a_wiped_api_server(rig: Rig) -> None:
    """Without a Node there is nothing to report to; with the new one all objects are back, and belong to it."""
    rig.start(rig.places(), rig.maps())
    await rig.written(rig.placement, rig.topology)

    rig.server.objects.wipe()
    await until_said(rig.troubles, "no Node worker-1", "--node-name")
    uid = rig.renew_node()

    await rig.server.until(lambda: bool(rig.status()) and rig.has(NODE_RESOURCE_TOPOLOGIES) is not None)
    assert rig.owner() == rig.owner(NODE_RESOURCE_TOPOLOGIES) == uid
    await until_said(rig.troubles)


async def test_a_node_that_is_created_anew_is_the_new_owner(rig: Rig) -> None:
    """Else the garbage collector would delete the objects."""
    rig.start(rig.places(), rig.maps())
    await rig.server.until(lambda: bool(rig.owner() and rig.owner(NODE_RESOURCE_TOPOLOGIES)))

    uid = rig.renew_node()

    await rig.server.until(lambda: rig.owner() == rig.owner(NODE_RESOURCE_TOPOLOGIES) == uid)


async def test_an_agent_that_may_not_write_says_so(rig: Rig) -> None:
    """And writes once it may."""
    rig.server.faults.refuses["patch", "nodeplacements"] = Refuses(403, "no right to patch", "Forbidden")
    rig.start(rig.places())

    said = await until_said(rig.troubles, "NodePlacement", "cannot be written")
    assert "403" in said
    assert "no right to patch" in said
    del rig.server.faults.refuses["patch", "nodeplacements"]
    await rig.server.until(lambda: bool(rig.status()))
    await until_said(rig.troubles)


async def test_an_agent_that_may_not_read_says_so(rig: Rig) -> None:
    """What it wrote before must not be overwritten before the rollout has read it."""
    rig.rollout.become(None)
    rig.server.faults.refuses["list", "nodeplacements"] = Refuses(403, "no right to list", "Forbidden")
    rig.start(rig.places())

    await until_said(rig.troubles, "NodePlacement worker-1 cannot be read", "no right to list")
    assert writes(rig) == 0


async def test_nothing_is_written_before_the_rollout_knows_its_state(rig: Rig) -> None:
    """Its state is in the object."""
    rig.rollout.become(None)
    rig.start(rig.places(), rig.maps())
    await rig.server.until(lambda: rig.has(NODE_RESOURCE_TOPOLOGIES) is not None)
    assert writes(rig) == 0

    rig.rollout.become(RolloutState("gpu", 2, "0123456789ab", "RolledBack", "no"))
    await rig.server.until(lambda: rig.status().get("phase") == "RolledBack")


async def test_an_api_server_that_was_away(rig: Rig) -> None:
    """What changed meanwhile is there when it is back, and the agent said that it could not write."""
    rig.start(rig.places())
    await rig.server.until(lambda: bool(rig.status()))

    await rig.server.stop()
    rig.says(view_of(released="meanwhile"))
    await until_said(rig.troubles, "NodePlacement", "cannot be written")
    await rig.server.start()

    await rig.server.until(lambda: rig.status().get("phase") == "Released")
    await until_said(rig.troubles)


async def test_a_definition_that_is_missing_and_then_installed(rig: Rig) -> None:
    """It is said how to install ours; that of the scheduler is missing in most clusters."""
    rig.server.served -= {NODE_PLACEMENTS, NODE_RESOURCE_TOPOLOGIES}
    rig.start(rig.places(), rig.maps())

    assert "criproxy schema --crds | kubectl apply" in await until_said(rig.troubles, "no nodeplacements")
    await rig.server.until(lambda: rig.server.requests["patch", "noderesourcetopologies"] == 0)
    assert len(rig.troubles.sentences()) == 1

    rig.server.served |= {NODE_PLACEMENTS, NODE_RESOURCE_TOPOLOGIES}
    await rig.written(rig.placement, rig.topology)
    await until_said(rig.troubles)


async def test_a_daemon_that_does_not_answer(rig: Rig) -> None:
    """Whether the node is well is unknown; what the scheduler reads stays as it was."""
    rig.start(rig.places(), rig.maps())
    await rig.written(rig.placement, rig.topology)
    before = rig.has(NODE_RESOURCE_TOPOLOGIES)

    rig.says(problem="nothing answers")
    await rig.server.until(lambda: rig.status()["phase"] == "Unknown")

    assert (rig.status()["ready"], rig.status()["cpus"]["exclusive"]) == ("Unknown", 2)
    rig.says(view_of())
    await rig.server.until(lambda: rig.status()["phase"] == "Applied")
    assert rig.has(NODE_RESOURCE_TOPOLOGIES) == before


async def test_a_restart_of_the_daemon_is_not_written(rig: Rig) -> None:
    """Only if it lasts, it is worth two writes of each node that is upgraded."""
    rig.start(rig.places(replace(FAST, silent_s=1000.0)))
    await rig.written(rig.placement)
    before = writes(rig)

    rig.says(problem="nothing answers")
    await asyncio.sleep(0.1)  # it has looked several times
    assert (writes(rig), rig.status()["phase"]) == (before, "Applied")

    rig.view._answered_s -= 2000.0
    await rig.server.until(lambda: rig.status()["phase"] == "Unknown")


async def test_an_agent_that_starts_while_the_daemon_is_away(rig: Rig) -> None:
    """The numbers of its former life stay."""
    rig.start(rig.places())
    await rig.server.until(lambda: bool(rig.status()))
    await rig.stop()
    rig.placement = Watched(rig.client, NODE_PLACEMENTS, name=NAME)
    rig.rollout.become(None)  # it knows nothing without the daemon
    rig.view.last = None
    rig.says(problem="nothing answers")

    rig.start(rig.places())
    await rig.server.until(lambda: rig.status()["phase"] == "Unknown")

    assert rig.status()["cpus"]["exclusive"] == 2


async def test_a_topology_has_what_the_scheduler_reads(rig: Rig) -> None:
    """And changes with the node."""
    rig.says(view_of(devices=gpus()))
    rig.start(rig.maps())
    await rig.server.until(lambda: rig.has(NODE_RESOURCE_TOPOLOGIES) is not None)
    obj = rig.has(NODE_RESOURCE_TOPOLOGIES) or {}
    assert {each["name"] for each in obj["zones"] if each["type"] == "Node"} == {f"node-{n}" for n in range(4)}
    assert {each["name"] for each in obj["attributes"]} >= {"topologyManagerPolicy", "nodeTopologyPodsFingerprint"}
    assert rig.owner(NODE_RESOURCE_TOPOLOGIES)

    rig.says(view_of(planned(containers=[WEB])))
    await rig.server.until(lambda: (rig.has(NODE_RESOURCE_TOPOLOGIES) or {})["zones"] != obj["zones"])


FOREIGN = {"metadata": {"name": NAME}, "zones": [{"name": "node-0", "type": "Node"}], "attributes": []}


async def test_another_agent_that_writes_the_same_is_no_contest(rig: Rig) -> None:
    """Such as the one of the pod before, while the DaemonSet is updated."""
    rig.start(rig.places())
    await rig.written(rig.placement)
    before = writes(rig)

    for second in range(5):
        version = rig.placement.version
        rig.edit(observedAt=f"2026-11-30T01:02:0{second}Z")
        await rig.placement.changed(version)
    await asyncio.sleep(0.1)  # it has looked several times

    assert writes(rig) == before
    assert rig.troubles.sentences() == []


async def test_two_agents_with_the_same_name_do_not_fight(rig: Rig) -> None:
    """Each of them writes once a minute, and says what is wrong."""
    rig.start(rig.places(replace(FAST, contested_s=1000.0)))
    await rig.written(rig.placement)

    for _ in range(3):
        rig.edit(phase="Released")
        await rig.server.until(lambda: rig.status()["phase"] == "Applied")

    said = await until_said(rig.troubles, "another program writes this node's NodePlacement, too")
    assert "do two agents have the same --node-name?" in said
    before = writes(rig)
    rig.edit(phase="Released")
    await asyncio.sleep(0.1)
    assert (writes(rig), rig.status()["phase"]) == (before, "Released")


async def test_zones_of_another_program_are_not_overwritten(rig: Rig) -> None:
    """It is said who writes them; when it no longer does, we do."""
    rig.server.objects.apply(NODE_RESOURCE_TOPOLOGIES, FOREIGN, manager="nfd-topology-updater")
    rig.start(rig.maps())

    await until_said(rig.troubles, "another program writes this node's NodeResourceTopology", "nfd-topology-updater")
    rig.says(view_of(planned(containers=[WEB])))
    await rig.server.until(lambda: writes(rig, NODE_RESOURCE_TOPOLOGIES) >= 3)
    assert (rig.has(NODE_RESOURCE_TOPOLOGIES) or {})["zones"] == FOREIGN["zones"]

    rig.server.objects.delete(NODE_RESOURCE_TOPOLOGIES, NAME)
    await rig.server.until(lambda: len((rig.has(NODE_RESOURCE_TOPOLOGIES) or FOREIGN)["zones"]) > 1)
    await until_said(rig.troubles)


async def test_a_program_that_takes_the_zones_over_has_them(rig: Rig) -> None:
    """As nri-plugins do, with a PUT: we do not fight."""
    rig.start(rig.maps())
    await rig.server.until(lambda: rig.has(NODE_RESOURCE_TOPOLOGIES) is not None)

    zones = {"zones": FOREIGN["zones"]}
    rig.server.objects.update(
        NODE_RESOURCE_TOPOLOGIES, NAME, "", lambda old: old | zones, manager="nri-resource-policy"
    )

    await until_said(rig.troubles, "another program", "nri-resource-policy")
    assert (rig.has(NODE_RESOURCE_TOPOLOGIES) or {})["zones"] == FOREIGN["zones"]
