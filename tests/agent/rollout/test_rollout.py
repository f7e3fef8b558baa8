"""Rollouts with the real parts of the agent: over HTTP to the small API server, and over sockets to daemons.

Twenty of the daemons are models; two are criproxy itself, on the embedded runtime.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from criproxy.agent import publish
from criproxy.agent.kubernetes.client import LEASES, NODE_PLACEMENTS, NODE_POLICIES, NODES, ApiClient
from criproxy.agent.kubernetes.credentials import plain
from criproxy.agent.kubernetes.watch import Watched
from criproxy.agent.node_view import NodeView
from criproxy.agent.objects.node_policy import NodePolicy
from criproxy.agent.publish import placement_publisher
from criproxy.agent.rollout.situation import Pace
from criproxy.agent.rollout.trial import Followed, Rollout
from criproxy.agent.troubles import Troubles
from lab.apiserver.server import ApiServer
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.agent.conftest import SHORT
from tests.agent.parts import running
from tests.agent.rollout.daemon_model import FILE, PROBLEM, DaemonModel, policy_object
from tests.daemons import Serve
from tests.node.world import RecordingLog

QUICK = Pace(keep_before_s=2.0, spare_s=5.0, patience_s=0.3, begin_within_s=0.3, requests_per_s=100.0, look_s=0.1)


@asynccontextmanager
async def agent(server: ApiServer, name: str, control_socket: Path) -> AsyncIterator[None]:
    """Run them on the node *name*."""
    log = RecordingLog()
    troubles = Troubles(log)
    view = NodeView(str(control_socket), name, troubles)
    async with ApiClient(plain(server.url), node=name, limits=SHORT) as client:
        policies, node = Watched(client, NODE_POLICIES), Watched(client, NODES, name=name, metadata_only=True)
        placement = Watched(client, NODE_PLACEMENTS, name=name)
        followed = Followed(policies, node, placement)
        rollout = Rollout(client, view, followed, namespace="criproxy", troubles=troubles, log=log, pace=QUICK)
        pace = publish.Pace(settle_s=(0.01, 0.05), least_s=0.1, first_pause_s=0.1, longest_pause_s=0.5)
        writer = placement_publisher(client, view, node, placement, rollout, troubles, pace)
        parts = (view.run(), policies.run(), node.run(), placement.run(), rollout.run(), writer.run())
        async with running(*parts):
            yield


@asynccontextmanager
async def twenty(server: ApiServer, directory: Path) -> AsyncIterator[dict[str, DaemonModel]]:
    """Twenty nodes with agents; at no moment more than two of them try something."""
    daemons = {f"node-{number:02}": DaemonModel(f"node-{number:02}") for number in range(20)}
    most = 0

    async def watch(daemon: DaemonModel) -> None:
        nonlocal most
        while True:
            await daemon.changed(daemon.version)
            most = max(most, sum(each.trial is not None for each in daemons.values()))

    watching = [asyncio.create_task(watch(each)) for each in daemons.values()]
    async with AsyncExitStack() as stack:
        for name, daemon in daemons.items():
            server.objects.create(NODES, {"metadata": {"name": name, "labels": {"pool": "gpu"}}})
            await stack.enter_async_context(daemon.listening(directory / f"{name}.sock"))
            await stack.enter_async_context(agent(server, name, directory / f"{name}.sock"))
        yield daemons
        for each in watching:
            each.cancel()
    assert 1 <= most <= 2


def placements(server: ApiServer) -> dict[str, str]:
    """The phases that the NodePlacements tell."""
    return {
        each["metadata"]["name"]: (each.get("status") or {}).get("phase", "")
        for each in server.objects.all(NODE_PLACEMENTS)
    }


def sources(server: ApiServer) -> dict[str, str]:
    """What is in force, as the NodePlacements tell."""
    return {
        each["metadata"]["name"]: each["status"]["policy"]["source"] for each in server.objects.all(NODE_PLACEMENTS)
    }


def holders(server: ApiServer) -> list[str]:
    """Who has a turn."""
    return [each["spec"]["holderIdentity"] for each in server.objects.all(LEASES) if "holderIdentity" in each["spec"]]


def policy(server: ApiServer) -> NodePolicy:
    """The NodePolicy."""
    return NodePolicy.read(server.objects.get(NODE_POLICIES, "p"))


async def test_a_bad_policy_on_twenty_nodes(apiserver: ApiServer, tmp_path: Path) -> None:
    """Two nodes at most are touched, all are back, and the object says on which node it failed and why."""
    async with twenty(apiserver, tmp_path) as daemons:
        options: dict[str, Any] = {"rollout_try": "10s", "rollout_atOnce": 2, "rollout_stopAfterFailures": 1}
        apiserver.objects.create(NODE_POLICIES, policy_object(policy="x", fails_on=[*daemons], after_s=0.2, **options))
        await apiserver.until(lambda: policy(apiserver).status.stopped)
        await apiserver.until(
            lambda: not holders(apiserver) and set(placements(apiserver).values()) == {"RolledBack", "Waiting"}
        )
        touched = {name for name, each in daemons.items() if each.tried}
        assert 1 <= len(touched) <= 2
        assert {each.now.source for each in daemons.values()} == {FILE}
        status = policy(apiserver).status
        assert {name for name, phase in placements(apiserver).items() if phase == "RolledBack"} <= touched
        assert (status.failures[0].node in touched, status.failures[0].text) == (True, PROBLEM)
        assert f"{status.failures[0].node}: {PROBLEM}" in status.message
        assert status.rollout is not None
        assert (status.rollout.nodes, status.rollout.slots) == (20, 2)


@pytest.mark.slow
async def test_a_good_policy_on_twenty_nodes(apiserver: ApiServer, tmp_path: Path) -> None:
    """All keep it, two at a time; no turn and no trouble is left."""
    async with twenty(apiserver, tmp_path) as daemons:
        options: dict[str, Any] = {"rollout_try": "1s", "rollout_atOnce": "10%"}
        apiserver.objects.create(NODE_POLICIES, policy_object(policy="x", **options))
        await apiserver.until(lambda: [*placements(apiserver).values()] == 20 * ["Applied"])
        await apiserver.until(lambda: not holders(apiserver))
        assert all(each.kept and each.now.source == "NodePolicy/p" for each in daemons.values())
        assert all(len(each.tried) == 1 for each in daemons.values())
        status = policy(apiserver).status
        assert status.rollout is not None
        assert (status.rollout.nodes, status.rollout.slots) == (20, 2)
        assert (status.failures, status.stopped) == ([], False)


RESERVED = {"policy": "topology-aware", "apply": "all", "reservedResources": {"cpu": "cpuset:0"}}
"""Three CPUs for two pods with an exclusive CPU each."""
TOO_LITTLE = RESERVED | {"reservedResources": {"cpu": "cpuset:0-2"}}
"""One of the pods has no CPU of its own any more."""
SLOWER = RESERVED | {"onError": "refuse"}
"""As good as the first."""


def pod(name: str) -> PodSpec:
    """A pod with an exclusive CPU."""
    return PodSpec(name, (ContainerSpec("main", IMAGE, cpu_limit_milli=1000, memory_limit_bytes=1 << 30),))


async def test_real_daemons(apiserver: ApiServer, tmp_path: Path) -> None:
    """One with which containers lack CPUs is tried on one node, and goes; a good one is kept, until it is deleted."""
    names = ("node-0", "node-1")
    async with AsyncExitStack() as stack:
        serves: dict[str, Serve] = {}
        for name in names:
            directory = tmp_path / name
            directory.mkdir()
            options = RuntimeOptions(host_root=directory)
            await stack.enter_async_context(EmbeddedRuntime(directory / "runtime.sock", options))
            text = 'policy: topology-aware\nreservedResources: {cpu: "cpuset:0"}\n'
            serves[name] = await stack.enter_async_context(Serve(directory, policy=text, cpus="0-3"))
            kubelet = await stack.enter_async_context(serves[name].kubelet())
            for number in range(2):
                await kubelet.run_pod(pod(f"db-{number}"))
            apiserver.objects.create(NODES, {"metadata": {"name": name}})
            await stack.enter_async_context(
                agent(apiserver, name, directory / "run" / "agent" / "pod" / "control.sock")
            )
        rollout = {"try": "3s"}
        await _refused_rolled_back_kept(apiserver, serves, rollout)


async def _refused_rolled_back_kept(server: ApiServer, serves: dict[str, Serve], rollout: dict[str, Any]) -> None:
    def put(content: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return lambda before: {**before, "spec": {"nodeSelector": {}, "policy": content, "rollout": rollout}}

    spec = {"nodeSelector": {}, "policy": {"policy": "topology-awake"}, "rollout": rollout}
    server.objects.create(NODE_POLICIES, {"metadata": {"name": "p"}, "spec": spec})
    await server.until(lambda: [*placements(server).values()] == ["Refused", "Refused"])

    server.objects.update(NODE_POLICIES, "p", "", put(TOO_LITTLE))
    await server.until(lambda: policy(server).status.stopped)
    await server.until(lambda: sorted(placements(server).values()) == ["RolledBack", "Waiting"])
    (failure,) = policy(server).status.failures
    assert "db-" in failure.text
    for each in serves.values():
        assert (await each.ask("status"))["configuration"]["file"] == str(each.policy)

    server.objects.update(NODE_POLICIES, "p", "", put(SLOWER))
    await server.until(lambda: [*placements(server).values()] == ["Applied", "Applied"])
    for each in serves.values():
        configuration = (await each.ask("status"))["configuration"]
        assert (configuration["file"], configuration["kept"]) == ("NodePolicy/p", True)
        assert (await each.command("status", "--check"))[0] == 0

    server.objects.delete(NODE_POLICIES, "p")
    await server.until(lambda: [*sources(server).values()] == [str(each.policy) for each in serves.values()])
