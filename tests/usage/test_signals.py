"""What replicas are scaled by, and how many of them may have no value."""

from criproxy.usage.scaling import Target, Why
from criproxy.usage.signals import NodeSignals, VgpuSignal, propose

GOAL = Target(name="vgpu-memory", target=0.8)


def vgpu(pod: str, used: float | None, limit: float | None = 100) -> VgpuSignal:
    """The memory of one vGPU."""
    return VgpuSignal(namespace="shop", pod=pod, profile="gpu-8g", memory_used=used, memory_limit=limit)


def test_replicas_elsewhere_cost_nothing() -> None:
    """However many replicas have no value here, they are a number and not a list."""
    proposal = propose("vgpu-memory", GOAL, 10**15, NodeSignals(), [vgpu("web", 90)])

    assert (proposal.missing, proposal.why, proposal.replicas) == (10**15 - 1, Why.MISSING, 10**15)
