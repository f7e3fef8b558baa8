"""Placement on real containers: the cgroups are read before, during and after, and over restarts of criproxy."""

import signal
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.model.cpuset import format_cpuset
from lab.containerd.containerd import IMAGE, PrivateContainerd
from tests.e2e.scene import ALL, MIB, OWNED, Scene, owner, sharer


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_everything_is_remembered_over_a_restart(scene: Scene, how: signal.Signals) -> None:
    """Nothing moves while criproxy is away or because it came back, newcomers respect owners, and ends are noticed."""
    _, shared = await scene.run(sharer("shared"))
    sandbox_id, owned = await scene.run(owner("owner"))

    await scene.restart(how)

    assert (await scene.cpus(owned), await scene.cpus(shared)) == (OWNED, ALL - OWNED)
    _, late = await scene.run(sharer("late"))
    assert await scene.cpus(late) == ALL - OWNED
    await scene.kubelet.remove_pod(sandbox_id)
    await scene.moves_to(shared, ALL)


async def test_an_owner_that_ends_by_itself_gives_its_cpu_back(scene: Scene) -> None:
    """To its pod, for which it is kept until the sandbox is stopped. Nobody tells of the end: its cgroup is gone."""
    _, shared = await scene.run(sharer("shared"))
    sandbox_id, ended = await scene.run(owner("job", ("sleep", "0.5")))
    await scene.has_exited(ended)
    pod = owner("job")
    again = await scene.kubelet.create(pod, sandbox_id, pod.containers[0], attempt=1)
    await scene.kubelet.start(again)
    assert (await scene.cpus(again), await scene.cpus(shared)) == (OWNED, ALL - OWNED)

    await scene.kubelet.stop_sandbox(sandbox_id)
    await scene.moves_to(shared, ALL)


async def test_cpusets_that_somebody_else_writes_are_put_back(scene: Scene, containerd: PrivateContainerd) -> None:
    """Whether through the runtime or right into the cgroup."""
    _, shared = await scene.run(sharer("shared"))
    _, owned = await scene.run(owner("owner"))
    await scene.moves_to(shared, ALL - OWNED)

    everything = api.LinuxContainerResources(cpuset_cpus=format_cpuset(ALL))
    await scene.direct.update_container_resources(shared, everything)
    file_of(containerd, owned).write_text(format_cpuset(ALL))

    await scene.moves_to(shared, ALL - OWNED)
    await scene.moves_to(owned, OWNED)


async def test_updates_of_the_kubelet_keep_our_cpuset(scene: Scene) -> None:
    """The kubelet's CPU manager, and a resize that changes no CPU, leave the container where the policy put it."""
    _, shared = await scene.run(sharer("shared"))
    _, owned = await scene.run(owner("owner"))
    whole = api.LinuxContainerResources(cpu_shares=1024, cpu_quota=100_000, cpu_period=100_000)

    for key in (shared, owned):
        await scene.kubelet.update(key, api.LinuxContainerResources(cpuset_cpus=format_cpuset(ALL)))
    await scene.kubelet.update(owned, whole)

    assert (await scene.cpus(owned), await scene.cpus(shared)) == (OWNED, ALL - OWNED)
    linux = (await scene.client.container_status(owned)).status.resources.linux
    assert (linux.cpu_quota, linux.memory_limit_in_bytes) == (100_000, 64 * MIB)


async def test_a_container_without_cgroup_path_or_resources_shares(scene: Scene) -> None:
    """What crictl creates is kept off the owner's CPU like everybody else."""
    await scene.run(owner("owner"))
    host = api.NamespaceOption(network=api.NODE)
    security = api.LinuxSandboxSecurityContext(namespace_options=host)
    sandbox = api.PodSandboxConfig(
        metadata=api.PodSandboxMetadata(name="s", uid="u", namespace="n"),
        linux=api.LinuxPodSandboxConfig(security_context=security),
    )
    ran = await scene.client.call("RunPodSandbox", api.RunPodSandboxRequest(config=sandbox), api.RunPodSandboxResponse)
    config = api.ContainerConfig(metadata=api.ContainerMetadata(name="c"), image=api.ImageSpec(image=IMAGE))
    request = api.CreateContainerRequest(pod_sandbox_id=ran.pod_sandbox_id, config=config, sandbox_config=sandbox)

    created = await scene.client.call("CreateContainer", request, api.CreateContainerResponse)
    await scene.kubelet.start(created.container_id)

    assert await scene.cpus(created.container_id) == ALL - OWNED


def file_of(containerd: PrivateContainerd, container_id: str) -> Path:
    """Where the CPUs of a container are written to."""
    v1 = Path("/sys/fs/cgroup/cpuset")
    root = (v1 if v1.is_dir() else v1.parent) / containerd.cgroups.root.lstrip("/")
    return next(folder / "cpuset.cpus" for folder in (root / "kubepods").rglob(container_id))
