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


def fill_sandbox(config: cri.PodSandboxConfig, pod: nri.PodSandbox) -> None:
    """Fill the configuration of a sandbox, which is empty."""
    names, linux = config.metadata, pod.linux
    names.name, names.uid, names.namespace = pod.name, pod.uid, pod.namespace
    config.labels.update(pod.labels)
    config.annotations.update(pod.annotations)
    config.linux.cgroup_parent = linux.cgroup_parent
    if linux.HasField("pod_resources"):
        _to_cri(config.linux.resources, linux.pod_resources)


def create_request(pod: nri.PodSandbox, container: nri.Container) -> cri.CreateContainerRequest:
    """Return the create of *container*, without annotations that the runtime has copied from its pod: a tenant's.

    The runtime waits meanwhile: parts that are made in place cost half of those that are made first and copied.
    """
    request = cri.CreateContainerRequest(pod_sandbox_id=pod.id)
    fill_sandbox(request.sandbox_config, pod)
    config, of_pod = request.config, pod.annotations
    for key, value in container.annotations.items():
        if of_pod.get(key) != value:
            config.annotations[key] = value
    attempt = container.annotations.get(RESTARTS, "0")
    config.metadata.name = container.name
    config.metadata.attempt = int(attempt) if attempt.isdecimal() and len(attempt) < 10 else 0
    add_env, add_mount, add_device = config.envs.add, config.mounts.add, config.devices.add
    for each in container.env:
        key, _, value = each.partition("=")
        add_env(key=key, value=value.encode())
    for found in container.mounts:
        add_mount(container_path=found.destination, host_path=found.source)
    for device in container.linux.devices:
        add_device(container_path=device.path, host_path=device.path)
    config.labels.update(container.labels)
    resources = config.linux.resources
    _to_cri(resources, container.linux.resources)
    resources.oom_score_adj = container.linux.oom_score_adj.value
    return request


def update_request(container_id: str, resources: nri.LinuxResources) -> cri.UpdateContainerResourcesRequest:
    """Return the update of a container, in which empty or 0 means unchanged."""
    request = cri.UpdateContainerResourcesRequest(container_id=container_id)
    request.linux.SetInParent()
    _to_cri(request.linux, resources)
    return request


def adjustment(
    container: nri.Container, asked: cri.CreateContainerRequest, wanted: cri.CreateContainerRequest, device_of: DeviceOf
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
    if before.mounts != after.mounts:
        kept = {(each.container_path, each.host_path) for each in after.mounts}
        found.mounts.extend(_mounts(container.mounts, kept))
    if before.devices != after.devices:
        found.linux.devices.extend(_devices(before.devices, after.devices, device_of))
    if before.linux != after.linux:
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
    for each in linux.hugepage_limits:
        resources.hugepage_limits.add(page_size=each.page_size, limit=each.limit)
    return found


def _to_cri(found: cri.LinuxContainerResources, resources: nri.LinuxResources) -> None:
    """Fill *found*, which is empty."""
    cpu, memory = resources.cpu, resources.memory
    found.cpu_period, found.cpu_quota = _within(cpu.period.value), cpu.quota.value
    found.cpu_shares = _within(cpu.shares.value)
    found.cpuset_cpus, found.cpuset_mems = cpu.cpus, cpu.mems
    found.memory_limit_in_bytes, found.memory_swap_limit_in_bytes = memory.limit.value, memory.swap.value
    for each in resources.hugepage_limits:
        found.hugepage_limits.add(page_size=each.page_size, limit=each.limit)
    found.unified.update(resources.unified)


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
    """Yield a removal for each place where a mount is not *kept*: NRI removes all there, so the others are added again.

    Mounts that are only in *kept* are not sent: the controller adds none.
    """
    mounts = [*before]
    for path in dict.fromkeys(each.destination for each in mounts if (each.destination, each.source) not in kept):
        yield nri.Mount(destination=f"-{path}")
        yield from (each for each in mounts if each.destination == path and (path, each.source) in kept)


def _devices(
    before: Iterable[cri.Device], after: Iterable[cri.Device], device_of: DeviceOf
) -> Iterator[nri.LinuxDevice]:
    """Yield removals, then additions; a node whose path in the container stays is not sent, whatever else differs."""
    had, has = ({each.container_path: each for each in devices} for devices in (before, after))
    yield from (nri.LinuxDevice(path=f"-{path}") for path in had if path not in has)
    for path, device in has.items():
        if path not in had:
            kind, major, minor = device_of(device.host_path)
            yield nri.LinuxDevice(path=path, type=kind, major=major, minor=minor)


def _env(before: Iterable[cri.KeyValue], after: Iterable[cri.KeyValue]) -> list[nri.KeyValue]:
    """Return the changes of variables; of several with one name, the last one counts in a process."""
    had, has = ({each.key: each.value for each in envs} for envs in (before, after))
    gone = [nri.KeyValue(key=f"-{key}") for key in had if key not in has]
    new = ((key, value) for key, value in has.items() if had.get(key) != value)
    return gone + [nri.KeyValue(key=key, value=value.decode()) for key, value in new]
