"""What replicas are scaled by, and how many of them may have no value."""

from dataclasses import replace

import pytest

from criproxy.devices.usage.scaling import Target, Why
from criproxy.devices.usage.scaling_signals import MetricName, NodeSignals, VgpuSignal, propose

GOAL = Target(name="vgpu-memory", target=0.8)


def vgpu(pod: str, used: float | None, limit: float | None = 100) -> VgpuSignal:
    """The memory of one vGPU."""
    return VgpuSignal(namespace="shop", pod=pod, profile="gpu-8g", memory_used=used, memory_limit=limit)


def test_replicas_elsewhere_cost_nothing() -> None:
    """However many replicas have no value here, they are a number and not a list."""
    proposal = propose("vgpu-memory", GOAL, 10**15, NodeSignals(), [vgpu("web", 90)])

    assert (proposal.missing, proposal.why, proposal.replicas) == (10**15 - 1, Why.MISSING, 10**15)


@pytest.mark.parametrize(
    ("vgpus", "value"),
    [
        pytest.param([vgpu("web", 90), vgpu("web", 30, 300)], 0.3, id="sum-by-sum"),
        pytest.param([vgpu("web", 90), vgpu("web", None, 300)], None, id="one-is-not-known"),
        pytest.param([vgpu("web", 90), vgpu("web", 70, None)], 0.9, id="one-without-a-quota"),
        pytest.param([vgpu("web", 90, None)], None, id="no-quota"),
        pytest.param([vgpu("web", 90), vgpu("api", 30, 300)], 0.5, id="mean-of-pods"),
    ],
)
@pytest.mark.parametrize("name", ["vgpu-memory", "vgpu-cores"])
def test_a_pod_with_several_vgpus(name: MetricName, vgpus: list[VgpuSignal], value: float | None) -> None:
    """It uses the sum of what they use, of the sum of their quotas, as the rules for prometheus-adapter have it."""
    if name == "vgpu-cores":
        vgpus = [replace(each, cores_used=each.memory_used, cores_limit=each.memory_limit) for each in vgpus]

    assert propose(name, GOAL, 1, NodeSignals(), vgpus).value == value
