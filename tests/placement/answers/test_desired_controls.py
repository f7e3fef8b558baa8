"""What the controls service is to apply follows from the grants, the classes, and the roles of CPUs."""

import time

import pytest

from criproxy.model.controls import BlockIo, Controls, CpuTuning, Irqs, Rdt, RdtClass, Scheduling
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Grant, Kept
from criproxy.model.node import Node
from criproxy.model.resources import CfsQuota
from criproxy.model.workload import Container, Pod
from criproxy.placement.answers.desired_controls import Use, controls_of, layout, use_of
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating
from criproxy.placement.options.class_rules import ClassParts, IrqRule, classes_of
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import empty_pools_of
from criproxy.simulate.hosts import machine
from tests.placement.classes.policy import container as asking
from tests.placement.classes.policy import contents

EIGHT = machine(nodes=2, cores=4, threads=1)
FAST, SLOW = CpuTuning(governor="performance"), CpuTuning(max_frequency="min")
PARTS = ClassParts(
    tunings={"fast": FAST, "slow": SLOW},
    irqs={"nic": IrqRule(claim=("nic*",)), "away": IrqRule(mode="away"), "sink": IrqRule(mode="sink")},
)


def grant(cpus: str, exclusive: str = "", home: str = "", **classes: str) -> Grant:
    """A place, and the classes of its container by kind."""
    controls = Controls(classes=tuple(sorted(classes.items())))
    owned, pool = parse_cpuset(exclusive), parse_cpuset(home)
    return Grant(parse_cpuset(cpus), frozenset([0]), owned, home=pool, controls=controls)


def desired(
    parts: ClassParts, *grants: Grant, kept: str = "", reserved: str = ""
) -> tuple[dict[str, str], Irqs | None]:
    """The CPUs of each class, and where interrupts go, on a node with these grants."""
    names = {str(number): each for number, each in enumerate(grants)}
    node = Node(EIGHT, grants=names, kept={"u": Kept({"c": parse_cpuset(kept)})} if kept else {})
    found = layout(node, parts, {use_of(each, parts) for each in grants}, parse_cpuset(reserved), {})
    assert found.tunings.keys() == found.cpus.keys()
    return dict(found.cpus), found.irqs


ROLES = {"idle": "slow", "shared": "slow", "reserved": "fast", "exclusive": "fast"}


@pytest.mark.parametrize(
    ("parts", "grants", "expected"),
    [
        pytest.param(PARTS, [grant("2-3", "2-3", cpu="fast")], {"fast": "2-3"}, id="of-an-owner"),
        pytest.param(PARTS, [grant("0-5", "2-3", cpu="fast")], {"fast": "2-3"}, id="not-beside-its-own"),
        pytest.param(PARTS, [grant("4-5", home="4-7", cpu="slow")], {"slow": "4-7"}, id="of-a-pool"),
        pytest.param(PARTS, [grant("4-7", cpu="slow"), grant("6-7")], {"slow": "4-5"}, id="where-all-agree"),
        pytest.param(PARTS, [grant("4-7", cpu="slow"), grant("6-7", cpu="fast")], {"slow": "4-5"}, id="not-where-two"),
        pytest.param(PARTS, [grant("4-7", cpu="none")], {}, id="of-a-class-that-sets-nothing"),
        pytest.param(
            ClassParts(tunings=PARTS.tunings, roles={"idle": "slow"}), [grant("0-3")], {"slow": "4-7"}, id="idle"
        ),
        pytest.param(
            ClassParts(tunings=PARTS.tunings, roles={"shared": "slow", "exclusive": "fast"}),
            [grant("2-3", "2-3"), grant("0-1"), grant("4", "4", cpu="slow")],
            {"fast": "2-3", "slow": "0-1,4"},
            id="roles-after-its-own",
        ),
    ],
)
def test_each_cpu_has_one_class(parts: ClassParts, grants: list[Grant], expected: dict[str, str]) -> None:
    """The container's own where it is alone or all agree, else that of the role."""
    assert desired(parts, *grants)[0] == expected


def test_a_cpu_with_several_roles_is_reserved_then_exclusive_then_shared() -> None:
    """Kept CPUs stay exclusive: their container is about to come back."""
    parts = ClassParts(tunings=dict.fromkeys(ROLES, FAST), roles={name: name for name in ROLES})

    cpus, irqs = desired(parts, grant("0-3"), grant("4", "4"), kept="5", reserved="0")

    assert cpus == {"reserved": "0", "exclusive": "4-5", "shared": "1-3", "idle": "6-7"}
    assert irqs is None, "no class is about interrupts"


@pytest.mark.parametrize(
    ("grants", "cpus", "claims"),
    [
        pytest.param([grant("2-3", "2-3")], "0-1,4-7", {}, id="away-from-owners"),
        pytest.param([grant("2-3", irq="away")], "0-1,4-7", {}, id="away-from-a-pool"),
        pytest.param([grant("2-5", irq="away"), grant("4-7")], "0-1,4-7", {}, id="not-away-from-others"),
        pytest.param([grant("2-5", "2-3", irq="away"), grant("4-7")], "0-1,4-7", {}, id="away-from-its-own"),
        pytest.param([grant("2-3", irq="sink")], "2-3", {}, id="sink"),
        pytest.param([grant("0-7", "0-7")], "0-7", {}, id="never-nowhere"),
        pytest.param(
            [grant("2", "2", irq="nic"), grant("4", "4", irq="nic")], "0-1,3,5-7", {("nic*",): "2,4"}, id="claimed"
        ),
    ],
)
def test_interrupts_leave_exclusive_cpus(grants: list[Grant], cpus: str, claims: dict[tuple[str, ...], str]) -> None:
    """Unless their container claims them; they always go somewhere."""
    irqs = desired(PARTS, *grants)[1]

    assert irqs is not None
    assert (irqs.cpus, {each.names: each.cpus for each in irqs.claims}) == (cpus, claims)


def test_a_class_for_each_pod_costs_little() -> None:
    """Annotations can make so many; no call is answered meanwhile."""
    big = machine(nodes=8, cores=32, threads=1)
    uses = {Use(big.cpus, big.cpus, False, f"+cpu-c-states=max_latency:{number}") for number in range(1000)}
    begun_s = time.process_time()

    assert layout(Node(big), PARTS, uses, big.cpus, {}).cpus == {}

    assert time.process_time() - begun_s < 0.5


def test_a_container_gets_what_the_runtime_cannot_set() -> None:
    """Of the classes that it has; without any, it is left alone."""
    parts = ClassParts(
        scheduling={"b": Scheduling(policy="batch")},
        block_io={"b": BlockIo(weight=10)},
        rdt=Rdt(classes=(RdtClass(name="b"),)),
        bursts={"b": 5_000},
    )
    one = Container(key="c", pod="p", name="main", cpu_quota=CfsQuota(200_000))

    found = controls_of(one, grant("0-7", cpu="b", scheduling="b", blockIO="b", rdt="b"), parts, "pods/c")

    assert found is not None
    assert (found.cgroup, found.scheduling, found.block_io) == ("pods/c", parts.scheduling["b"], parts.block_io["b"])
    assert (found.rdt_class, found.burst_us) == ("b", 100_000)
    assert controls_of(one, grant("0-7", memory="b"), parts, "pods/c") is None


BALLOONS = """policy: balloons
reservedCpus: "0"
idleCPUClass: slow
cpuClasses: {fast: {minFreq: base}, slow: {maxFreq: min}}
balloonTypes:
- {name: quick, cpuClass: fast, minBalloons: 2, minCPUs: 2, maxCPUs: 2, irqMode: isolate, namespaces: [shop]}
- {name: plain, minBalloons: 1, minCPUs: 1}
"""
POOLS = """policy: pools
reservedResources: {cpu: 1}
classes: {fast: {for: {pools: [quick]}, cpu: {minFreq: base}}, slow: {cpu: {maxFreq: min}}}
idleCPUClass: slow
pools:
- {name: quick, instances: 2, cpu: 2}
"""


@pytest.mark.parametrize(
    ("text", "fast", "irqs"), [pytest.param(BALLOONS, 4, 4, id="balloons"), pytest.param(POOLS, 4, None, id="pools")]
)
def test_a_pool_without_containers_has_its_class(text: str, fast: int, irqs: int | None) -> None:
    """Its CPUs are ready for the first container, and not idle; a pool without a class is."""
    settings = contents(text, topology=EIGHT).settings
    assert settings is not None
    policy, classes = settings.build_policy(), classes_of(settings.build_policy())
    assert classes is not None
    node, parts = Node(EIGHT), classes.desired_parts()
    reserved = options_of(policy).reserved(EIGHT)

    found = layout(node, parts, (), reserved, empty_pools_of(policy, node))

    cpus = {name: parse_cpuset(text) for name, text in found.cpus.items()}
    assert len(cpus["fast"]) == fast
    assert cpus["fast"] | cpus["slow"] == EIGHT.cpus - reserved
    assert (found.irqs and len(EIGHT.cpus - parse_cpuset(found.irqs.cpus))) == irqs

    pod = Pod(key="p", namespace="shop", annotations={"pool.podpools.criproxy.io/pod": "quick"})
    busy = step(node.replace(pods={"p": pod}), ContainerCreating(asking(key="a")), policy).node
    assert empty_pools_of(policy, busy).keys() < empty_pools_of(policy, node).keys()
    (its,) = busy.grants.values()
    assert (its.pool.partition("[")[0], its.controls.class_of("cpu")) == ("quick", "fast")
