"""The embedded runtime as a client sees it: life of pods and containers.

That its codes and texts are those of containerd, for every method and mistake, `tests/e2e/test_embedded.py` shows.
"""

import asyncio

import pytest
from google.protobuf.message import Message

from criproxy.cri import api_pb2 as cri
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.errors import StatusCode
from lab.emulator.records.cpusets import Cpuset
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec, container_config, sandbox_config
from tests.daemons import until

SPEC = ContainerSpec("main", IMAGE, cpu_limit_milli=1000, memory_limit_bytes=1 << 26)
POD = PodSpec("pod", (SPEC,), given_uid="uid-1", labels={"app": "x"})
EVERYWHERE = Cpuset(frozenset(range(4)), frozenset({0}))


async def failure(client: RuntimeClient, name: str, request: Message, reply: type[Message]) -> tuple[StatusCode, str]:
    """Return code and text of a call that must fail."""
    with pytest.raises(RuntimeCallError) as caught:
        await client.call(name, request, reply)
    return caught.value.code, caught.value.details


async def state(client: RuntimeClient, container_id: str) -> str:
    """Return the state of a container without its prefix."""
    status = (await client.container_status(container_id)).status
    return cri.ContainerState.Name(status.state).removeprefix("CONTAINER_")


async def test_status_and_list_tell_what_was_asked(client: RuntimeClient, kubelet: MiniKubelet) -> None:
    """Labels, annotations, image and resources come back; the swap limit follows the memory limit."""
    sandbox_id, ids = await kubelet.run_pod(POD)
    config = container_config(POD, SPEC, 8 << 30)

    status = (await client.container_status(ids["main"])).status
    (listed,) = await client.list_containers(sandbox_id[:12])

    assert (status.metadata, status.labels, status.annotations) == (config.metadata, config.labels, config.annotations)
    assert (listed.metadata, listed.labels, listed.annotations) == (config.metadata, config.labels, config.annotations)
    assert status.resources.linux.cpu_shares == config.linux.resources.cpu_shares
    assert status.resources.linux.memory_swap_limit_in_bytes == SPEC.memory_limit_bytes
    assert (listed.id, listed.pod_sandbox_id, listed.state) == (status.id, sandbox_id, cri.CONTAINER_RUNNING)
    assert 0 < status.created_at <= status.started_at


async def test_a_bad_cpuset_fails_the_start_not_the_creation(client: RuntimeClient, kubelet: MiniKubelet) -> None:
    """As on containerd: an update of a created container takes anything, its start then leaves it exited."""
    sandbox_id = await kubelet.run_sandbox(POD)
    container_id = await kubelet.create(POD, sandbox_id, SPEC)
    await kubelet.update(container_id, cri.LinuxContainerResources(cpuset_cpus="abc"))

    code, text = await failure(
        client, "StartContainer", cri.StartContainerRequest(container_id=container_id), cri.StartContainerResponse
    )

    status = (await client.container_status(container_id)).status
    assert (code, text) == (StatusCode.UNKNOWN, status.message)
    assert (status.reason, status.exit_code, status.started_at) == ("StartError", 128, 0)
    assert 'failed to write "abc"' in text
    assert await state(client, container_id) == "EXITED"


async def test_a_prefix_names_one_object_or_none(client: RuntimeClient, runtime: EmbeddedRuntime) -> None:
    """A unique prefix is as good as the id; an ambiguous one is an error in a call and matches nothing in a filter."""
    for number in range(17):  # one more than there are first digits
        config = sandbox_config(PodSpec(f"p{number}"))
        await client.call("RunPodSandbox", cri.RunPodSandboxRequest(config=config), cri.RunPodSandboxResponse)
    firsts = [identifier[0] for identifier in runtime.core.records.sandboxes]
    shared = max(firsts, key=firsts.count)
    unique = next(iter(runtime.core.records.sandboxes))[:32]

    found = cri.PodSandboxStatusRequest(pod_sandbox_id=unique)
    status = (await client.call("PodSandboxStatus", found, cri.PodSandboxStatusResponse)).status
    many = cri.PodSandboxStatusRequest(pod_sandbox_id=shared)
    _, text = await failure(client, "PodSandboxStatus", many, cri.PodSandboxStatusResponse)
    listed = cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(id=shared))

    assert status.id.startswith(unique)
    assert f"Multiple IDs found with provided prefix: {shared}" in text
    assert not (await client.call("ListPodSandbox", listed, cri.ListPodSandboxResponse)).items


async def begin_start(kubelet: MiniKubelet, runtime: EmbeddedRuntime) -> tuple[str, str, asyncio.Future[None]]:
    """Return sandbox, container and the start that is under way."""
    sandbox_id = await kubelet.run_sandbox(POD)
    container_id = await kubelet.create(POD, sandbox_id, SPEC)
    starting = asyncio.ensure_future(kubelet.start(container_id))
    await until(lambda: runtime.core.records.container(container_id).starting, 0)
    return sandbox_id, container_id, starting


class TestSlow:
    """A runtime whose calls take a while."""

    @pytest.fixture
    def options(self) -> RuntimeOptions:
        """Make creation and start slow, and nothing else."""
        return RuntimeOptions(latency_s={"CreateContainer": 1.5, "StartContainer": 1.0})

    async def test_a_cancelled_creation_happens_all_the_same(
        self, client: RuntimeClient, kubelet: MiniKubelet, runtime: EmbeddedRuntime
    ) -> None:
        """The client's deadline passes, the name is taken, and the container appears."""
        sandbox_id = await kubelet.run_sandbox(POD)
        create = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox_id, config=container_config(POD, SPEC, 1 << 30), sandbox_config=sandbox_config(POD)
        )

        with pytest.raises(RuntimeCallError, match="did not answer CreateContainer"):
            await client.call("CreateContainer", create, cri.CreateContainerResponse, timeout_s=0.5)

        assert not runtime.core.records.containers
        code, text = await failure(client, "CreateContainer", create, cri.CreateContainerResponse)
        assert (code, "is reserved for" in text) == (StatusCode.UNKNOWN, True)
        await until(lambda: bool(runtime.core.records.containers))
        assert len(await client.list_containers(sandbox_id)) == 1

    async def test_an_update_during_a_start_is_answered_and_lost(
        self, client: RuntimeClient, kubelet: MiniKubelet, runtime: EmbeddedRuntime
    ) -> None:
        """The spec says the new cpuset, the cgroup the old one: what containerd 1.6 does in a third of the cases."""
        _, container_id, starting = await begin_start(kubelet, runtime)

        await kubelet.update(container_id, cri.LinuxContainerResources(cpuset_cpus="1"))
        await starting

        told = (await client.container_status(container_id)).status.resources.linux.cpuset_cpus
        assert told == "1"
        assert runtime.cpuset(container_id) == EVERYWHERE

    async def test_a_start_outlives_the_stop_of_its_sandbox(
        self, client: RuntimeClient, kubelet: MiniKubelet, runtime: EmbeddedRuntime
    ) -> None:
        """The sandbox was looked at before, and the stop did not see the container: seen with containerd 1.6."""
        sandbox_id, container_id, starting = await begin_start(kubelet, runtime)
        stop = cri.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)

        await client.call("StopPodSandbox", stop, cri.StopPodSandboxResponse)

        await starting
        assert await state(client, container_id) == "RUNNING"


async def test_what_is_left_out_of_lists_is_there_all_the_same(
    client: RuntimeClient, runtime: EmbeddedRuntime, kubelet: MiniKubelet
) -> None:
    """Its status is told, and lists have it again afterwards."""
    sandbox_id, ids = await kubelet.run_pod(POD)
    runtime.leave_out(sandbox_id, ids["main"])

    assert not await client.list_containers()
    assert not await client.list_containers(sandbox_id)
    assert not await client.list_pod_sandbox()
    assert await state(client, ids["main"]) == "RUNNING"
    assert (await client.pod_sandbox_status(sandbox_id)).status.state == cri.SANDBOX_READY

    runtime.leave_out()
    assert [each.id for each in await client.list_containers()] == [ids["main"]]
