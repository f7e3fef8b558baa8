"""Options of the policy ``topology-aware``, with the names that they have in nri-plugins."""

from pydantic import Field

from criproxy.policy.options import CpuSetOption, NamespacePattern, Options


class TopologyAwareOptions(Options):
    """Options of the policy ``topology-aware``."""

    reserved_cpus: CpuSetOption = frozenset()
    """CPUs that no container owns: those of the namespaces in reservedPoolNamespaces run there, and they keep the node
    itself alive."""
    reserved_pool_namespaces: tuple[NamespacePattern, ...] = ("kube-system",)
    """Namespaces whose containers share the reserved CPUs; * and ? stand for anything."""
    pin_cpu: bool = Field(default=True, alias="pinCPU")
    """Whether containers are kept to the CPUs of their pool; otherwise the pool decides about their memory only."""
    pin_memory: bool = True
    """Whether the memory of containers may be kept to the NUMA nodes of their pool."""
    prefer_isolated_cpus: bool = Field(default=True, alias="preferIsolatedCPUs")
    """Whether owners of a single CPU get one of those that the kernel keeps free (isolcpus), as long as there are."""
    prefer_shared_cpus: bool = Field(default=False, alias="preferSharedCPUs")
    """Whether everybody shares, Guaranteed pods that ask for whole CPUs included."""
