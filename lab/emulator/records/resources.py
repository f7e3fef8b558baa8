"""LinuxContainerResources as containerd keeps them: at creation, and merged with an update."""

from criproxy.cri import api_pb2 as cri

_KEPT_IF_ZERO = ("cpu_period", "cpu_quota", "cpu_shares", "cpuset_cpus", "cpuset_mems")


def as_created(asked: cri.LinuxContainerResources) -> cri.LinuxContainerResources:
    """Return what the spec of a new container says; the swap limit follows the memory limit."""
    resources = cri.LinuxContainerResources()
    resources.CopyFrom(asked)
    if asked.memory_limit_in_bytes and not asked.memory_swap_limit_in_bytes:
        resources.memory_swap_limit_in_bytes = asked.memory_limit_in_bytes
    return resources


def merged(old: cri.LinuxContainerResources, asked: cri.LinuxContainerResources) -> cri.LinuxContainerResources:
    """Return *old* with what *asked* sets: zero and empty keep, huge pages append, oom_score_adj is ignored."""
    resources = cri.LinuxContainerResources()
    resources.CopyFrom(old)
    for name in _KEPT_IF_ZERO:
        value = getattr(asked, name)
        if value:
            setattr(resources, name, value)
    if asked.memory_limit_in_bytes:
        resources.memory_limit_in_bytes = asked.memory_limit_in_bytes
    swap_bytes = asked.memory_swap_limit_in_bytes or asked.memory_limit_in_bytes
    if swap_bytes:
        resources.memory_swap_limit_in_bytes = swap_bytes
    resources.hugepage_limits.extend(asked.hugepage_limits)
    for key, value in asked.unified.items():
        resources.unified[key] = value
    return resources
