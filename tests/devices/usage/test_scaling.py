"""The number of replicas is that of Kubernetes' HorizontalPodAutoscaler, case by case."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.devices.usage.scaling import MOST_REPLICAS, Limits, Proposal, Target, Why, by_pods, by_value, recommend
from criproxy.devices.usage.scaling_signals import MetricName, NodeSignals, VgpuSignal, propose

HALF = Target(name="cpu", target=0.5)


@pytest.mark.parametrize(
    ("current", "value", "replicas", "why"),
    [
        pytest.param(3, 0.5, 3, Why.WITHIN, id="on-target"),
        pytest.param(3, 0.55, 3, Why.WITHIN, id="upper-threshold-itself"),
        pytest.param(3, 0.56, 4, Why.MORE, id="above-it"),
        pytest.param(3, 0.45, 3, Why.WITHIN, id="lower-threshold-itself"),
        pytest.param(3, 0.44, 3, Why.FEWER, id="below-it-but-rounded-up"),
        pytest.param(4, 0.25, 2, Why.FEWER, id="half"),
        pytest.param(4, 1.0, 8, Why.MORE, id="double"),
        pytest.param(4, 0.0, 0, Why.FEWER, id="idle"),
        pytest.param(10, 0.6, 12, Why.MORE, id="no-replica-by-rounding"),
        pytest.param(0, 0.6, None, Why.MORE, id="no-replicas-above"),
        pytest.param(0, 0.5, None, Why.WITHIN, id="no-replicas-within"),
        pytest.param(0, 0.05, None, Why.FEWER, id="no-replicas-below"),
        pytest.param(10**6, 1.7e308, MOST_REPLICAS, Why.MORE, id="beyond-all-measure"),
        pytest.param(0, 1.7e308, None, Why.MORE, id="no-replicas-beyond-all-measure"),
        pytest.param(10**6, -1.7e308, 0, Why.FEWER, id="below-all-measure"),
        pytest.param(3, None, None, Why.UNKNOWN, id="not-known"),
    ],
)
def test_a_metric_of_one_value(current: int, value: float | None, replicas: int | None, why: Why) -> None:
    """ceil(current × value / target), and nothing within a tenth of the target."""
    proposal = by_value(HALF, current, value)

    assert (proposal.replicas, proposal.why) == (replicas, why)


@pytest.mark.parametrize(
    ("current", "values", "replicas", "why"),
    [
        pytest.param(3, [0.9, 0.9, 0.9], 6, Why.MORE, id="all-known"),
        pytest.param(3, [0.5, 0.6, 0.5], 3, Why.WITHIN, id="mean-within"),
        pytest.param(4, [0.1, 0.1, 0.1, 0.1], 1, Why.FEWER, id="fewer"),
        pytest.param(3, [], None, Why.UNKNOWN, id="no-pods"),
        pytest.param(3, [None, None, None], None, Why.UNKNOWN, id="no-values"),
        pytest.param(3, [1.0, 1.0, None], 4, Why.MORE, id="missing-as-nothing"),
        pytest.param(3, [0.6, 0.6, None], 3, Why.MISSING, id="missing-turns-it"),
        pytest.param(3, [0.8, 0.8, None], 3, Why.MISSING, id="missing-brings-it-within"),
        pytest.param(4, [0.1, 0.1, 0.1, None], 2, Why.FEWER, id="missing-as-target"),
        pytest.param(2, [0.1, None], 2, Why.FEWER, id="missing-makes-it-small"),
        pytest.param(2, [0.44, None], 2, Why.MISSING, id="missing-brings-it-within-below"),
        pytest.param(0, [0.1], None, Why.FEWER, id="no-replicas-below"),
        pytest.param(0, [0.9, None], None, Why.MORE, id="no-replicas-above"),
        pytest.param(5, [1.2, 1.2, 1.2], 8, Why.MORE, id="pods-that-answer-count"),
    ],
)
def test_a_metric_of_pods(current: int, values: Sequence[float | None], replicas: int | None, why: Why) -> None:
    """The mean counts; who has no value uses nothing where there would be more, and the target where fewer."""
    proposal = by_pods(HALF, current, values)

    assert (proposal.replicas, proposal.why) == (replicas, why)


def test_tolerances_of_their_own() -> None:
    """How far the target may be exceeded, and how far it may be missed, are two numbers."""
    target = Target(name="cpu", target=0.5, tolerance_up=0.0, tolerance_down=0.4)

    assert (target.up, target.down) == (0.5, 0.3)
    assert by_value(target, 4, 0.51).replicas == 5
    assert by_value(target, 4, 0.31).replicas == 4
    assert by_value(target, 4, 0.29).replicas == 3


def wants(replicas: int | None, name: str = "cpu") -> Proposal:
    """A proposal."""
    target = Target(name=name, target=0.5)
    return Proposal(target=target, value=None, replicas=replicas, why=Why.UNKNOWN)


@pytest.mark.parametrize(
    ("current", "proposals", "desired", "note"),
    [
        pytest.param(3, [wants(2), wants(5)], 5, "", id="the-most"),
        pytest.param(3, [wants(1), wants(2)], 2, "", id="fewer"),
        pytest.param(3, [wants(5), wants(None, "memory")], 5, "", id="more-although-one-is-not-known"),
        pytest.param(3, [wants(2), wants(None, "memory")], 3, "no scale-down while unknown: memory", id="not-fewer"),
        pytest.param(3, [wants(None)], 3, "no metric has a value", id="nothing-known"),
        pytest.param(3, [], 3, "no metric has a value", id="no-metric"),
        pytest.param(3, [wants(50)], 10, "the metrics call for 50; at least 2 and at most 10 are allowed", id="limit"),
        pytest.param(3, [wants(0)], 2, "the metrics call for 0; at least 2 and at most 10 are allowed", id="fewest"),
        pytest.param(12, [wants(20)], 10, "at least 2 and at most 10 replicas are allowed", id="too-many-are-there"),
        pytest.param(1, [wants(9)], 2, "at least 2 and at most 10 replicas are allowed", id="too-few-are-there"),
        pytest.param(0, [wants(9)], 0, "with 0 replicas the autoscaler does nothing", id="off"),
    ],
)
def test_all_metrics_together(current: int, proposals: list[Proposal], desired: int, note: str) -> None:
    """The most of all metrics within the limits; a metric that is not known lets nobody end."""
    result = recommend(current, proposals, Limits(fewest=2, most=10))

    assert (result.desired, result.note) == (desired, note)


RATIOS = st.floats(0, 10)


@given(st.integers(1, 50), st.lists(st.one_of(st.none(), RATIOS), max_size=50), st.floats(0.01, 2))
def test_missing_values_never_make_a_step_larger(current: int, values: list[float | None], goal: float) -> None:
    """Whatever is not known, the proposal is no further from what there is than the known values want alone."""
    values = (values + [None] * current)[:current]
    target = Target(name="x", target=goal)
    known = [each for each in values if each is not None]
    proposal = by_pods(target, current, values)

    if not known:
        assert proposal.replicas is None
        return
    assert proposal.replicas is not None
    alone = by_value(target, current, sum(known) / len(known)).replicas
    assert alone is not None
    low, high = min(alone, current), max(alone, current)
    assert low <= proposal.replicas <= high or math.isclose(proposal.value or 0, goal)


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
