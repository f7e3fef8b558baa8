"""NRI's messages ↔ those of CRI, which the controller understands.

What the runtime tells becomes the request that the kubelet has sent, as far as NRI shows it: names, labels,
annotations, resources, variables, device nodes and mounts. What the controller has changed in such a request becomes an
adjustment or an update.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from criproxy.cri import api_pb2 as cri
from criproxy.cri.stamp import in_spec
from criproxy.nri import api_pb2 as nri

RESTARTS = "io.kubernetes.container.restartCount"
"""The kubelet's annotation with the number of a container's attempt, which NRI does not have."""
DeviceOf = Callable[[str], tuple[str, int, int]]
"""Returns type (``c`` or ``b``), major and minor number of a device node of the host."""


def sandbox_config(pod: nri.PodSandbox) -> cri.PodSandboxConfig:
    """Return the configuration of a sandbox."""
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(name=pod.name, uid=pod.uid, namespace=pod.namespace),
        labels=pod.labels,
        annotations=pod.annotations,
        linux=cri.LinuxPodSandboxConfig(
            cgroup_parent=pod.linux.cgroup_parent,
            resources=_to_cri(pod.linux.pod_resources) if pod.linux.HasField("pod_resources") else None,
        ),
    )


def create_request(pod: nri.PodSandbox, container: nri.Container) -> cri.CreateContainerRequest:
    """Return the create of *container*, without annotations that the runtime has copied from its pod: a tenant's."""
    resources = _to_cri(container.linux.resources)
    resources.oom_score_adj = container.linux.oom_score_adj.value
    annotations = {key: value for key, value in container.annotations.items() if pod.annotations.get(key) != value}
    attempt = annotations.get(RESTARTS, "0")
    return cri.CreateContainerRequest(
        pod_sandbox_id=pod.id,
        sandbox_config=sandbox_config(pod),
        config=cri.ContainerConfig(
            metadata=cri.ContainerMetadata(
                name=container.name, attempt=int(attempt) if attempt.isdecimal() and len(attempt) < 10 else 0
            ),
            envs=[
                cri.KeyValue(key=key, value=value.encode())
                for key, _, value in (each.partition("=") for each in container.env)
            ],
            mounts=[cri.Mount(container_path=each.destination, host_path=each.source) for each in container.mounts],
            devices=[cri.Device(container_path=each.path, host_path=each.path) for each in container.linux.devices],
            labels=container.labels,
            annotations=annotations,
            linux=cri.LinuxContainerConfig(resources=resources),
        ),
    )


def update_request(container_id: str, resources: nri.LinuxResources) -> cri.UpdateContainerResourcesRequest:
    """Return the update of a container, in which empty or 0 means unchanged."""
    return cri.UpdateContainerResourcesRequest(container_id=container_id, linux=_to_cri(resources))


def adjustment(
    container: nri.Container,
    asked: cri.CreateContainerRequest,
    wanted: cri.CreateContainerRequest,
    device_of: DeviceOf,
) -> nri.ContainerAdjustment:
    """Return what makes the create that was *asked* for *container* the *wanted* one.

    Raises:
        OSError: a device node that is to be added does not exist.
    """
    before, after = asked.config, wanted.config
    keys, changed = in_spec(container.id), _changed(before.annotations, after.annotations)
    found = nri.ContainerAdjustment(annotations={keys.get(key, key): value for key, value in changed.items()})
    if before.envs != after.envs:
        found.env.extend(_env(before.envs, after.envs))
    found.mounts.extend(_mounts(container.mounts, {(each.container_path, each.host_path) for each in after.mounts}))
    nodes, kept = ({each.container_path: each for each in config.devices} for config in (before, after))
    found.linux.devices.extend(nri.LinuxDevice(path=f"-{path}") for path in nodes.keys() - kept.keys())
    for path in kept.keys() - nodes.keys():
        kind, major, minor = device_of(kept[path].host_path)
        found.linux.devices.append(nri.LinuxDevice(path=path, type=kind, major=major, minor=minor))
    _adjust(found.linux.resources, before.linux.resources, after.linux.resources)
    return found


def update(container_id: str, linux: cri.LinuxContainerResources) -> nri.ContainerUpdate:
    """Return an update of a container with the fields that are set in *linux*."""
    found = nri.ContainerUpdate(container_id=container_id)
    resources = found.linux.resources
    _adjust(resources, cri.LinuxContainerResources(), linux)
    if linux.memory_limit_in_bytes:
        resources.memory.limit.value = linux.memory_limit_in_bytes
    if linux.memory_swap_limit_in_bytes:
        resources.memory.swap.value = linux.memory_swap_limit_in_bytes
    resources.hugepage_limits.extend(
        nri.HugepageLimit(page_size=each.page_size, limit=each.limit) for each in linux.hugepage_limits
    )
    return found


def _to_cri(resources: nri.LinuxResources) -> cri.LinuxContainerResources:
    cpu, memory = resources.cpu, resources.memory
    return cri.LinuxContainerResources(
        cpu_period=_within(cpu.period.value),
        cpu_quota=cpu.quota.value,
        cpu_shares=_within(cpu.shares.value),
        cpuset_cpus=cpu.cpus,
        cpuset_mems=cpu.mems,
        memory_limit_in_bytes=memory.limit.value,
        memory_swap_limit_in_bytes=memory.swap.value,
        hugepage_limits=[
            cri.HugepageLimit(page_size=each.page_size, limit=each.limit) for each in resources.hugepage_limits
        ],
        unified=resources.unified,
    )


def _within(value: int) -> int:
    """Return an unsigned number as CRI has it."""
    return min(value, (1 << 63) - 1)


def _adjust(
    resources: nri.LinuxResources, before: cri.LinuxContainerResources, after: cri.LinuxContainerResources
) -> None:
    """Set in *resources* what differs: everything that the controller writes."""
    if after.cpuset_cpus != before.cpuset_cpus:
        resources.cpu.cpus = after.cpuset_cpus
    if after.cpuset_mems != before.cpuset_mems:
        resources.cpu.mems = after.cpuset_mems
    if after.cpu_quota != before.cpu_quota:
        resources.cpu.quota.value = after.cpu_quota
    if after.cpu_period != before.cpu_period:
        resources.cpu.period.value = after.cpu_period
    if after.cpu_shares != before.cpu_shares:
        resources.cpu.shares.value = after.cpu_shares
    for key, value in _changed(before.unified, after.unified).items():
        resources.unified[key] = value


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in after.items() if before.get(key) != value}


def _mounts(before: Iterable[nri.Mount], kept: Collection[tuple[str, str]]) -> Iterator[nri.Mount]:
    """Yield the changes of mounts: of several at one place, NRI removes all, so those that stay are added again."""
    mounts = [*before]
    for path in {each.destination for each in mounts if (each.destination, each.source) not in kept}:
        yield nri.Mount(destination=f"-{path}")
        yield from (each for each in mounts if each.destination == path and (path, each.source) in kept)


def _env(before: Iterable[cri.KeyValue], after: Iterable[cri.KeyValue]) -> list[nri.KeyValue]:
    """Return the changes of variables; of several with one name, the last one counts in a process."""
    had, has = ({each.key: each.value for each in envs} for envs in (before, after))
    gone = [nri.KeyValue(key=f"-{key}") for key in had.keys() - has.keys()]
    new = ((key, value) for key, value in has.items() if had.get(key) != value)
    return gone + [nri.KeyValue(key=key, value=value.decode()) for key, value in new]
