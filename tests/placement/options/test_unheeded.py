"""What criproxy cannot do for a container is told, not passed over."""

import pytest

from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, PodCreated
from criproxy.placement.options.unheeded import annotation_notes
from criproxy.placement.policies import BUILTIN
from criproxy.simulate.hosts import machine

IS_NOT = "has no effect"
CLASSES = "the policy file has no classes"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("scheduling-class.resource-policy.nri.io/pod", CLASSES, id="of-the-pod"),
        pytest.param("cpu-class.criproxy.io", CLASSES, id="without-scope"),
        pytest.param(
            "irq-affinity.criproxy.io/container.main",
            "interrupts are claimed by classes, see irq-class",
            id="of-the-container",
        ),
        pytest.param("cri-resource-manager.intel.com/rdtclass", CLASSES, id="the-old-form"),
        pytest.param(
            "prefer-isolated-cpu.criproxy.io/pod",
            "no policy reads it; did you mean 'prefer-isolated-cpus'?",
            id="misspelt",
        ),
        pytest.param("colour.criproxy.io/pod", "no policy reads it", id="unknown"),
    ],
)
def test_annotations_without_effect(name: str, said: str) -> None:
    """Each has a sentence that says why."""
    assert list(annotation_notes([name], "main")) == [f"annotation {name} {IS_NOT}: {said}"]


@pytest.mark.parametrize(
    "name",
    [
        "scheduling-class.resource-policy.nri.io/container.other",
        "prefer-isolated-cpus.criproxy.io/pod",
        "criproxy.io/affinity",
        "strict.topologyhints.resource-policy.nri.io",
        "rdt.resources.beta.kubernetes.io/pod",
        "cpu-quota.crio.io",
    ],
)
def test_other_annotations(name: str) -> None:
    """What is about another container, and what some policy reads, needs no word."""
    assert list(annotation_notes([name], "main")) == []


@pytest.mark.parametrize("policy", ["static", "pools", "balloons", "topology-aware"])
@pytest.mark.parametrize("milli", [0, 1000], ids=["shares", "owns"])
def test_decisions_tell_it(policy: str, milli: int) -> None:
    """By every policy, whether its container owns CPUs or not."""
    entry = BUILTIN[policy]
    qos = QosClass.GUARANTEED if milli else QosClass.BEST_EFFORT
    container = Container(key="c", pod="p", name="main", namespace="shop", pod_name="web", qos=qos, cpu_milli=milli)
    pod = Pod(key="p", name="web", namespace="shop", annotations={"rdtclass.criproxy.io": "gold"})
    by = entry.build(entry.options())
    node = step(Node(machine(nodes=2)), PodCreated(pod), by).node

    assert (
        step(node, ContainerCreating(container), by).sentences[-1]
        == f"annotation rdtclass.criproxy.io {IS_NOT}: {CLASSES}"
    )


@pytest.mark.parametrize("name", ["class.criproxy.io", "cpu-class.resource-policy.nri.io/pod", "criproxy.io/rdtclass"])
def test_annotations_that_name_classes(name: str) -> None:
    """They need no word if there are classes: the choice of the class has one."""
    assert list(annotation_notes([name], "main", classes=True)) == []
