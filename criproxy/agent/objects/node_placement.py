"""NodePlacement: what a node reports, one small object for each node."""

from typing import Literal

from criproxy.agent.objects.node_policy import Report

Phase = Literal["Applied", "Trying", "RolledBack", "Refused", "LastGood", "Released", "Bypassed", "Waiting", "Unknown"]
Answer = Literal["True", "False", "Unknown"]


class PolicyInForce(Report):
    """The policy in effect."""

    name: str = ""
    """The policy, such as topology-aware."""
    source: str = ""
    """Where its options are from: a file of the node, or NodePolicy/NAME."""
    hash: str = ""
    """The first 12 digits of the SHA-256 of these options."""


class RolloutOnNode(Report):
    """How far the NodePolicy that selects the node has come on it."""

    policy: str = ""
    """The NodePolicy."""
    generation: int = 0
    """Of its spec."""
    hash: str = ""
    """Of its policy."""
    phase: str = ""
    """Trying, Applied, RolledBack, Refused, Waiting, or LastGood: the policy file cannot take its place."""
    message: str = ""
    """Why, in a sentence."""


class Cpus(Report):
    """CPUs, counted as the kernel does."""

    capacity: int = 0
    """All."""
    exclusive: int = 0
    """Those that a container has for itself."""
    free: int | None = None
    """Those that could become exclusive, if it is known."""


class NumaCpus(Cpus):
    """CPUs of one NUMA node."""

    list: str = ""
    """Their numbers."""
    available_milli: int | None = None
    """What containers can still request, in thousandths of a CPU, if it is known."""


class Memory(Report):
    """Memory of one NUMA node."""

    capacity_bytes: int = 0
    """All."""
    allocatable_bytes: int = 0
    """What containers may use."""
    available_bytes: int | None = None
    """What no container has requested, if it is known."""


class NumaNode(Report):
    """One NUMA node."""

    id: int
    """Its number."""
    cpus: NumaCpus = NumaCpus()
    """Its CPUs."""
    memory: Memory = Memory()
    """Its memory."""


class Devices(Report):
    """Devices of one resource, and of one profile of vGPUs, on one NUMA node."""

    resource: str
    """As pods request it."""
    numa_node: int | None = None
    """Where the devices are, if it is known."""
    profile: str = ""
    """The profile of the vGPUs; empty: no vGPUs."""
    total: int = 0
    """All."""
    allocated: int = 0
    """Those that containers have."""
    free: int = 0
    """Those that containers can get; the others are unhealthy."""


class Versions(Report):
    """Versions of the programs on the node."""

    criproxy: str = ""
    """The daemon."""
    agent: str = ""
    """The agent that wrote this."""
    runtime: str = ""
    """The container runtime and its version."""


class PlacementStatus(Report):
    """What the node reports."""

    phase: Phase
    """Which configuration is in effect. Applied: the wished one. Trying: the wished one, for the time of its try.
    Waiting: the node waits for its turn. RolledBack: the try failed, and the former one is back. Refused: the daemon
    refuses the wished one. LastGood: the policy file cannot be used, and the last good one is in effect. Released: no
    container is placed, on request. Bypassed: calls pass without criproxy. Unknown: the daemon does not answer."""
    message: str = ""
    """Why, in a sentence."""
    ready: Answer
    """Whether the kubelet goes through criproxy, containers are placed, and no NodePolicy is refused or unreadable."""
    problems: tuple[str, ...] = ()
    """What `criproxy status --check` says: at most 20 problems, and the beginning of each."""
    policy: PolicyInForce = PolicyInForce()
    """The policy in effect."""
    rollout: RolloutOnNode = RolloutOnNode()
    """How far the NodePolicy that selects the node has come on it."""
    cpus: Cpus = Cpus()
    """CPUs of the node."""
    numa_nodes: tuple[NumaNode, ...] = ()
    """NUMA nodes, at most 64."""
    devices: tuple[Devices, ...] = ()
    """Accelerators, at most 64 rows."""
    versions: Versions = Versions()
    """Versions of the programs on the node."""
    last_call: str = ""
    """When the kubelet had called last (RFC 3339) when this was written."""
    observed_at: str = ""
    """When this was written (RFC 3339): at each change, and every ten minutes."""
