"""Options of the policy ``topology-aware``, with the names that they have in nri-plugins."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from criproxy.model.machine.topology import Level
from criproxy.placement.options.policy_options import CpuSetOption, Exclusive, NamespacePattern, Options

SYSTEM_NAMESPACE = "kube-system"
BurstLevel = Literal["system", "package", "socket", "die", "numa", "l3cache"]
LEVELS: Mapping[str, Level] = {
    "system": Level.MACHINE,
    "package": Level.PACKAGE,
    "socket": Level.PACKAGE,
    "die": Level.DIE,
    "numa": Level.NODE,
    "l3cache": Level.L3,
}
"""What the words for parts of the machine mean."""


class TopologyAwareOptions(Options):
    """Options of the policy ``topology-aware``."""

    reserved_cpus: CpuSetOption = frozenset()
    """CPUs that never become exclusive, so that the node's own processes always have CPUs to run on. Containers of the
    namespaces in reservedPoolNamespaces share them."""
    reserved_pool_namespaces: tuple[NamespacePattern, ...] = (SYSTEM_NAMESPACE,)
    """Namespaces whose containers share the reserved CPUs; * and ? are wildcards. kube-system is always included."""
    pin_cpu: bool = Field(default=True, alias="pinCPU")
    """Whether containers run only on the CPUs of their pool; otherwise the pool determines only their memory."""
    pin_memory: bool = True
    """Whether the memory of containers may be restricted to the NUMA nodes of their pool."""
    prefer_isolated_cpus: bool = Field(default=True, alias="preferIsolatedCPUs")
    """Whether containers with a single exclusive CPU get an isolated one (isolcpus) if one is free."""
    default_cpu_priority: Literal["high", "normal", "low", "none"] = Field(default="none", alias="defaultCPUPriority")
    """Which CPUs become exclusive first on a machine with several kinds: the fastest (high), the usual ones (normal),
    efficiency cores (low), or any (none). The annotation prefer-cpu-priority overrides this option for a pod."""
    prefer_shared_cpus: bool = Field(default=False, alias="preferSharedCPUs")
    """Whether all containers share CPUs, including those of Guaranteed pods that request whole CPUs."""
    colocate_pods: bool = False
    """Whether the containers of a pod are placed near each other, unless they have their own affinities."""
    colocate_namespaces: bool = False
    """Whether the containers of a namespace are placed near each other, unless they have their own affinities."""
    unlimited_burstable: BurstLevel = "package"
    """The size of the part of the machine in which Burstable containers without a CPU limit run, if there is room: the
    whole machine (system), a socket (package or socket), a die, a NUMA node (numa) or the CPUs of a level 3 cache
    (l3cache)."""
    exclusive: Exclusive = Exclusive()
    """What happens to exclusive CPUs when their container ends."""
    cpu_classes: dict[str, Any] | tuple[dict[str, Any], ...] = Field(default=(), alias="cpuClasses")
    """Classes that only have `cpu`, as in nri-plugins."""
    scheduling_classes: tuple[dict[str, Any], ...] = ()
    """Classes that only have `scheduling`, as in nri-plugins."""
    namespace_scheduling_classes: dict[str, str] = Field(default_factory=dict)
    """The class whose `scheduling` the containers of a namespace have; * and ? are wildcards."""
    pod_qos_scheduling_classes: dict[str, str] = Field(default_factory=dict, alias="podQoSSchedulingClasses")
    """The class whose `scheduling` the containers of a QoS class have."""
    controllable_interrupts: tuple[str, ...] = ()
    """The interrupts that criproxy may move: names as in /proc/interrupts; * and ? are wildcards. By default, all."""
