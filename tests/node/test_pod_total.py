"""What the kubelet says of a whole pod is known: from its sandbox, from every create, and from a resize of the pod."""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.model.resources import milli_to_quota, milli_to_shares
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.node.world import GIB, World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Four CPUs, of which CPU 0 is reserved, under the static policy."""
    async with World(tmp_path) as world:
        yield world


def spec(name: str, cpu_milli: int) -> ContainerSpec:
    """A container of a Guaranteed pod."""
    return ContainerSpec(name, IMAGE, cpu_limit_milli=cpu_milli, memory_limit_bytes=GIB)


async def resize_pod(world: World, sandbox_id: str, cpu_milli: int) -> None:
    """The kubelet's call about the whole pod, which it takes for done whatever the runtime answers."""
    request = api.UpdatePodSandboxResourcesRequest(
        pod_sandbox_id=sandbox_id,
        resources=api.LinuxContainerResources(
            cpu_shares=milli_to_shares(cpu_milli), cpu_quota=milli_to_quota(cpu_milli), cpu_period=100_000
        ),
    )
    with suppress(RuntimeCallError):
        await world.client.call("UpdatePodSandboxResources", request, api.UpdatePodSandboxResourcesResponse, 10.0)


async def test_a_sandbox_says_the_total_of_its_pod(world: World) -> None:
    """It is there before the first container, and after a restart of criproxy."""
    sandbox = await world.kubelet.run_sandbox(PodSpec("pod", (spec("a", 1000), spec("b", 500))))
    await world.until(lambda: sandbox in world.controller.node.pods)
    assert world.controller.node.pods[sandbox].cpu_total_milli == 1500

    await world.restart()

    assert world.controller.node.pods[sandbox].cpu_total_milli == 1500


async def test_a_create_says_a_newer_total(world: World) -> None:
    """The copy of the sandbox's configuration in it may be from after a resize of the pod that nobody told of."""
    small = PodSpec("pod", (spec("a", 1000),))
    sandbox = await world.kubelet.run_sandbox(small)
    await world.kubelet.create(replace(small, containers=(spec("a", 2000),)), sandbox, spec("a", 2000))

    assert world.controller.node.pods[sandbox].cpu_total_milli == 2000


async def test_a_resize_of_the_pod_counts_whatever_the_runtime_answers(world: World) -> None:
    """The embedded runtime, as containerd up to 2.2, does not know the call; the kubelet goes on all the same."""
    pod = PodSpec("pod", (spec("a", 1000),))
    sandbox = await world.kubelet.run_sandbox(pod)
    await world.until(lambda: sandbox in world.controller.node.pods)

    await resize_pod(world, sandbox, 3000)

    await world.until(lambda: world.controller.node.pods[sandbox].cpu_total_milli == 3000)


async def test_a_lost_store_finds_the_total_in_the_stamps(world: World, tmp_path: Path) -> None:
    """Lists do not tell it, and the kubelet says it again only with the next create."""
    _, ids = await world.kubelet.run_pod(PodSpec("pod", (spec("a", 1000), spec("b", 500))))
    sandbox = world.controller.node.containers[ids["a"]].pod
    await world.booked()
    await world.stop_criproxy()
    rmtree(tmp_path / "state")
    await world.start_criproxy()

    await world.until(lambda: ids["b"] in world.controller.node.containers)
    assert world.controller.node.pods[sandbox].cpu_total_milli == 1500
