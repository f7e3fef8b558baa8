"""Messages that describe the records: list entries, statuses, statistics.

A list entry is kept as bytes with its field header, so that a list reply is a concatenation: listing 1,000
containers must not cost more than a proxy in front of it.
"""

import json
import time
from collections.abc import Iterable

from criproxy.cri import api_pb2 as cri
from lab.emulator.records.records import Container, Sandbox


def listed_sandboxes(sandboxes: Iterable[Sandbox]) -> bytes:
    """Return a serialised ListPodSandboxResponse (and StreamPodSandboxesResponse, which has the same layout)."""
    return b"".join(sandbox.listed or _list_sandbox(sandbox) for sandbox in sandboxes)


def listed_containers(containers: Iterable[Container]) -> bytes:
    """Return a serialised ListContainersResponse (and StreamContainersResponse, which has the same layout)."""
    return b"".join(container.listed or _list_container(container) for container in containers)


def _list_sandbox(sandbox: Sandbox) -> bytes:
    entry = cri.PodSandbox(
        id=sandbox.id,
        metadata=sandbox.config.metadata,
        state=sandbox.state,
        created_at=sandbox.created_ns,
        labels=sandbox.config.labels,
        annotations=sandbox.config.annotations,
        runtime_handler=sandbox.runtime_handler,
    )
    sandbox.listed = cri.ListPodSandboxResponse(items=[entry]).SerializeToString()
    return sandbox.listed


def _list_container(container: Container) -> bytes:
    entry = cri.Container(
        id=container.id,
        pod_sandbox_id=container.sandbox.id,
        metadata=container.config.metadata,
        image=container.config.image,
        image_ref=container.image_id,
        state=container.state,
        created_at=container.created_ns,
        labels=container.config.labels,
        annotations=container.config.annotations,
        image_id=container.image_id,
    )
    container.listed = cri.ListContainersResponse(containers=[entry]).SerializeToString()
    return container.listed


def sandbox_status(sandbox: Sandbox) -> cri.PodSandboxStatus:
    """Return the status of a sandbox; host-network ones have no address, as in containerd."""
    status = cri.PodSandboxStatus(
        id=sandbox.id,
        metadata=sandbox.config.metadata,
        state=sandbox.state,
        created_at=sandbox.created_ns,
        labels=sandbox.config.labels,
        annotations=sandbox.config.annotations,
        runtime_handler=sandbox.runtime_handler,
    )
    options = sandbox.config.linux.security_context.namespace_options
    status.linux.namespaces.options.CopyFrom(options)
    status.network.SetInParent()
    if options.network != cri.NODE and sandbox.ready:
        status.network.ip = "10.88." + ".".join(str(int(sandbox.id[at : at + 2], 16)) for at in (0, 2))
    return status


def container_status(container: Container) -> cri.ContainerStatus:
    """Return the status of a container, with the resources of its spec."""
    log_directory = container.sandbox.config.log_directory
    return cri.ContainerStatus(
        id=container.id,
        metadata=container.config.metadata,
        state=container.state,
        created_at=container.created_ns,
        started_at=container.started_ns,
        finished_at=container.finished_ns,
        exit_code=container.exit_code,
        image=container.config.image,
        image_ref=container.image_id,
        reason=container.reason,
        message=container.message,
        labels=container.config.labels,
        annotations=container.config.annotations,
        mounts=container.config.mounts,
        log_path=f"{log_directory}/{container.config.log_path}" if container.config.log_path else "",
        resources=cri.ContainerResources(linux=container.resources),
        image_id=container.image_id,
    )


def container_info(container: Container) -> dict[str, str]:
    """Return the verbose part of ContainerStatus: process and cgroup, where containerd says them."""
    nodes = [{"path": device.container_path} for device in container.config.devices]
    annotations = {**container.config.annotations, **container.added}
    spec = {"annotations": annotations, "linux": {"cgroupsPath": container.cgroup, "devices": nodes}}
    config = {"linux": {"security_context": {"privileged": container.config.linux.security_context.privileged}}}
    return {
        "info": json.dumps(
            {"config": config, "sandboxID": container.sandbox.id, "pid": container.pid, "runtimeSpec": spec}
        )
    }


def container_stats(container: Container) -> cri.ContainerStats:
    """Return made-up statistics: a container uses one CPU fully since its start, and 1 MiB."""
    now = time.time_ns()
    used_ns = max(0, now - container.started_ns) if container.started_ns else 0
    memory_bytes = cri.UInt64Value(value=1 << 20)
    return cri.ContainerStats(
        attributes=cri.ContainerAttributes(
            id=container.id,
            metadata=container.config.metadata,
            labels=container.config.labels,
            annotations=container.config.annotations,
        ),
        cpu=cri.CpuUsage(timestamp=now, usage_core_nano_seconds=cri.UInt64Value(value=used_ns)),
        memory=cri.MemoryUsage(timestamp=now, working_set_bytes=memory_bytes, usage_bytes=memory_bytes),
    )


def sandbox_stats(sandbox: Sandbox, running: Iterable[Container]) -> cri.PodSandboxStats:
    """Return made-up statistics of a sandbox and its running containers."""
    stats = cri.PodSandboxStats(
        attributes=cri.PodSandboxAttributes(
            id=sandbox.id,
            metadata=sandbox.config.metadata,
            labels=sandbox.config.labels,
            annotations=sandbox.config.annotations,
        )
    )
    stats.linux.containers.extend(container_stats(container) for container in running)
    return stats
