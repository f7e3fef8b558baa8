"""Whole CPUs go to Guaranteed containers that ask for them, everybody else shares the rest."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import pytest

from criproxy.errors import NotEnough, StatusCode
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.grant import Grant
from criproxy.model.machine.topology import Core, Topology
from criproxy.model.node import Node, without
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.invariants import violations
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.simulate.hosts import GIB, machine

MACHINE = machine(nodes=2, cores=4, threads=2)  # node 0: 0-3,8-11
BOTH = frozenset({0, 1})


WEB = Container(key="", pod="s", name="", pod_name="web", namespace="shop", memory_limit_bytes=GIB)


def policy(reserved: object = "0", **options: object) -> StaticPolicy:
    """The policy with reserved CPUs, and with other options."""
    return StaticPolicy(StaticOptions.model_validate({"reservedCpus": reserved, **options}))


def container(key: str, cpu_milli: int, qos: QosClass = QosClass.GUARANTEED) -> Container:
    """A container with a memory limit of 1 GiB."""
    return replace(WEB, key=key, name=key, qos=qos, cpu_milli=cpu_milli)


def place(node: Node, newcomer: Container, by: StaticPolicy) -> Node:
    """The node with the newcomer placed."""
    known = node.replace(containers={**node.containers, newcomer.key: newcomer})
    return known.replace(grants={**node.grants, **by.place(known, newcomer).grants})


@pytest.mark.parametrize(
    ("cpu_milli", "qos", "count"),
    [
        pytest.param(2000, QosClass.GUARANTEED, 2, id="guaranteed-whole"),
        pytest.param(2500, QosClass.GUARANTEED, 0, id="guaranteed-fraction"),
        pytest.param(500, QosClass.GUARANTEED, 0, id="guaranteed-less-than-one"),
        pytest.param(0, QosClass.GUARANTEED, 0, id="guaranteed-nothing"),
        pytest.param(2000, QosClass.BURSTABLE, 0, id="burstable-whole"),
        pytest.param(0, QosClass.BEST_EFFORT, 0, id="best-effort"),
    ],
)
def test_who_owns(cpu_milli: int, qos: QosClass, count: int) -> None:
    """Only whole numbers of CPUs in Guaranteed pods are owned."""
    node = place(Node(MACHINE), container("c", cpu_milli, qos), policy())

    assert len(node.grants["c"].exclusive) == count


def released(by: StaticPolicy, node: Node, key: str) -> Mapping[str, Grant]:
    """The grants of others that change when a container leaves."""
    return by.release(node.replace(grants=without(node.grants, (key,))), node.grants[key]).grants


def test_reasons_say_what_was_asked_and_given() -> None:
    """The reasons name the container, its CPUs, the rule and the memory."""
    node = Node(MACHINE)

    own = policy().place(node, container("c", 2000)).reasons
    fraction = policy().place(node, container("c", 2500)).reasons
    burstable = policy().place(node, container("c", 2000, QosClass.BURSTABLE)).reasons

    assert own == (
        "shop/web/c gets exclusive CPUs 1,9: its pod is Guaranteed and it asks for 2",
        "memory from NUMA node 0, near its CPUs",
    )
    assert fraction == ("shop/web/c shares CPUs 0-15: it asks for 2500m, which is not a whole number of CPUs",)
    assert burstable == ("shop/web/c shares CPUs 0-15: its pod is Burstable",)


@pytest.mark.parametrize(
    ("reserved", "asked", "expected"),
    [
        pytest.param(
            "0",
            16,
            "only 15 are available; free: CPUs 1-3,8-11 on NUMA node 0, CPUs 4-7,12-15 on NUMA node 1",
            id="all",
        ),
        pytest.param("0-14", 2, "only 1 is available; free: CPU 15 on NUMA node 1", id="one"),
        pytest.param("0-15", 1, "none is available; free: none on any NUMA node", id="everything-reserved"),
    ],
)
def test_refusal_says_what_is_free_and_where(reserved: str, asked: int, expected: str) -> None:
    """Who does not fit is told what it asked and what is free, in one sentence."""
    with pytest.raises(NotEnough) as caught:
        place(Node(MACHINE), container("c", asked * 1000), policy(reserved))

    assert str(caught.value).startswith(
        f"container shop/web/c asks for {asked} exclusive CPU{'s' * (asked != 1)}, but {expected}"
    )
    assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED


def places(by: StaticPolicy, topology: Topology, *arrivals: Container) -> list[str]:
    """Where each of several containers is in the end."""
    node = Node(topology)
    for arrival in arrivals:
        node = place(node, arrival, by)
        assert violations(node, by.options.reserved(topology)) == []
    return [format_cpuset(node.grants[arrival.key].cpus) for arrival in arrivals]


def test_shared_remainder() -> None:
    """Of 2500m two CPUs are owned and the rest is shared, also when others come and go."""
    by = policy(sharedRemainder=True, exclusiveFor=["Guaranteed", "Burstable"])
    mixed, owner = container("a", 2500, QosClass.BURSTABLE), container("b", 2000)
    assert places(by, MACHINE, mixed, container("c", 900)) == ["0-15", "0,2-8,10-15"]
    assert places(by, MACHINE, mixed, owner) == ["0-1,3-9,11-15", "2,10"]

    node = place(place(Node(MACHINE), mixed, by), owner, by)
    assert format_cpuset(node.grants["a"].exclusive) == "1,9"
    assert released(by, node, "b")["a"].cpus == MACHINE.cpus
    assert released(by, node, "a") == {}
    assert "gets exclusive CPUs 1,9 and shares CPUs 0,2-8,10-15: its pod is Burstable and it asks for 2500m" in (
        by.place(Node(MACHINE, containers={"a": mixed}), mixed).reasons_about("a")[0].text
    )


def test_isolated_cpus() -> None:
    """Owners get them first, others never while there are more; a pod may say otherwise."""
    topology = replace(MACHINE, isolated_cpus=parse_cpuset("6-7,14"))
    by = policy(preferIsolatedCPUs=True)
    one, two, shared = container("a", 2000), container("b", 2000), container("c", 100)

    assert places(by, topology, one, two, shared) == ["6,14", "7,15", "0-5,8-13"]
    assert places(policy(), topology, one, shared) == ["1,9", "0,2-8,10-15"]
    said = {key: Pod(key="s", annotations={"prefer-isolated-cpus.criproxy.io": key}) for key in ("true", "false")}
    for policy_, value, cpus in ((by, "false", "4,12"), (policy(), "true", "6,14")):
        node = place(Node(topology, pods={"s": said[value]}), one, policy_)
        assert format_cpuset(node.grants["a"].cpus) == cpus


def test_a_usual_shared_cpu_is_left() -> None:
    """Where an owner would take all CPUs that are neither reserved nor isolated, it takes an isolated one instead."""
    topology = replace(machine(nodes=1, cores=4, threads=1), isolated_cpus=parse_cpuset("3"))
    by = policy(preferIsolatedCPUs=True, strictCPUReservation=True)
    pod = Pod(key="s", annotations={"prefer-isolated-cpus.criproxy.io": "false"})
    node = place(Node(topology, pods={"s": pod}), container("a", 2000), by)

    assert places(by, topology, container("b", 100)) == ["1-2"]
    assert len(node.grants["a"].exclusive & parse_cpuset("1-2")) == 1


def test_full_cores_only() -> None:
    """Wholly free cores if there are as many, even on several nodes; otherwise it says what could not be had."""
    by = policy("0-2,12-14", fullPcpusOnly=True)
    assert places(by, MACHINE, container("a", 4000)) == ["3,7,11,15"]
    assert places(policy("0-2,12-14"), MACHINE, container("a", 4000)) == ["3,8-9,11"]

    three = container("a", 3000)
    layout = by.place(Node(MACHINE, containers={"a": three}), three)
    assert layout.reasons[-1] == "it shares a core with others: cores have 2 threads"
    six = container("a", 6000)
    layout = by.place(Node(MACHINE, containers={"a": six}), six)
    assert layout.reasons[-1] == "it shares a core with others: only 4 CPUs of free cores are left"


def test_across_nodes_and_cores() -> None:
    """The same from each node that is needed; or one thread of each core."""
    assert places(policy(""), MACHINE, container("a", 10_000)) == ["0-4,8-12"]
    assert places(policy("", distributeCPUsAcrossNUMA=True), MACHINE, container("a", 12_000)) == ["0-2,4-6,8-10,12-14"]
    assert places(policy(distributeCPUsAcrossCores=True), MACHINE, container("a", 3000)) == ["1-3"]


def test_align_by_socket() -> None:
    """One socket rather than fewer NUMA nodes."""
    eight = machine(nodes=8, cores=4, threads=1, packages=2)
    reserved = "5-7,11-15,23,27-31"

    assert places(policy(reserved), eight, container("a", 8000)) == ["0-3,16-19"]
    assert places(policy(reserved, alignBySocket=True), eight, container("a", 8000)) == ["0-4,8-10"]


def resized(by: StaticPolicy, *cpu_milli: int) -> str:
    """The CPUs of an owner that is alone and asks for these sizes, one after the other."""
    node = Node(MACHINE)
    for size in cpu_milli:
        node = place(node, container("a", size), by)
    return format_cpuset(node.grants["a"].cpus)


def test_options_hold_for_a_resize() -> None:
    """Whole cores, or threads of as many cores as possible, are what an owner gets more, and what it keeps."""
    cores = policy(fullPcpusOnly=True)
    assert resized(cores, 1000) == "8"
    assert resized(cores, 1000, 2000) == "1,9"
    assert resized(cores, 2000, 4000) == "1-2,9-10"
    assert resized(cores, 4000, 2000) == "1,9"
    across = policy(distributeCPUsAcrossCores=True)
    assert resized(across, 1000, 3000) == resized(across, 3000)
    assert resized(across, 7000, 3000) == "1-3"


def test_who_leaves_a_core_for_whole_ones_stays_in_its_node() -> None:
    """A newcomer would get the tight one of the other node."""
    half = place(Node(MACHINE), container("a", 1000), policy("0,4-7,12-15", fullPcpusOnly=True))
    by = policy("0,4-6,12-14", fullPcpusOnly=True)

    assert format_cpuset(half.grants["a"].cpus) == "8"
    assert format_cpuset(place(half, container("a", 2000), by).grants["a"].cpus) == "1,9"
    assert places(by, MACHINE, container("a", 2000)) == ["7,15"]


def hybrid() -> Topology:
    """One NUMA node with four cores of two threads (CPUs 0-7) and three of one thread (CPUs 8-10)."""
    plain = machine(nodes=1, cores=11, threads=1)
    pairs = [frozenset({cpu, cpu + 1}) for cpu in range(0, 8, 2)]
    cores = (*pairs, *(frozenset({cpu}) for cpu in (8, 9, 10)))
    return replace(plain, cores=tuple(Core(min(cpus), cpus) for cpus in cores), l2_groups=tuple(cores))


@pytest.mark.parametrize("reserved", ["0", "0-1", "0,8", "0,8-10", "0-1,2,9", "0-5,8", "0,2,4,6"])
def test_whole_cores_of_different_sizes(reserved: str) -> None:
    """Whole cores whenever free ones have exactly as many CPUs, and no note; else a sentence says why not."""
    by, topology = policy(reserved, fullPcpusOnly=True), hybrid()
    free = topology.cpus - parse_cpuset(reserved)
    sizes = [len(core.cpus) for core in topology.cores if core.cpus <= free]
    sums = {sum(some) for count in range(len(sizes) + 1) for some in combinations(sizes, count)}
    for count in range(1, len(free)):
        one = container("a", count * 1000)
        layout = by.place(Node(topology, containers={"a": one}), one)
        own = layout.grants["a"].cpus
        split = [core.id for core in topology.cores if core.cpus & own and not core.cpus <= own]
        said = [text for text in map(str, layout.reasons) if "it shares a core with others" in text]

        assert len(own) == count
        assert (bool(split), bool(said)) == ((count not in sums),) * 2, (count, own, said)


def test_a_core_with_an_offline_sibling_is_whole() -> None:
    """One CPU is the core whose other thread is offline, and no thread of a core in use."""
    plain = machine(nodes=2, cores=3, threads=2)  # core 5 has CPUs 5 and 11
    cores = tuple(Core(core.id, core.cpus - {11}) for core in plain.cores)
    online = plain.online_cpus - {11}
    topology = replace(plain, cpus=online, online_cpus=online, offline_cpus=frozenset({11}), cores=cores)

    assert places(policy(fullPcpusOnly=True), topology, container("a", 1000)) == ["5"]


@pytest.mark.parametrize(
    ("grant", "expected"),
    [
        pytest.param(
            Grant(parse_cpuset("4,12"), frozenset({1}), parse_cpuset("4,12")), "5,13", id="its-cpus-are-reserved"
        ),
        pytest.param(Grant(parse_cpuset("4,12"), BOTH, parse_cpuset("4,12")), "5,13", id="memory-everywhere"),
        pytest.param(Grant(parse_cpuset("4-7"), BOTH, pool="elsewhere"), "3,11", id="nowhere-at-home"),
    ],
)
def test_who_has_to_leave_its_cpus_stays_near_its_memory(grant: Grant, expected: str) -> None:
    """Which does not move; a newcomer would get the tight core of the other node."""
    by = policy("0-2,4,8-10,12")
    assert places(by, MACHINE, container("a", 2000)) == ["3,11"]

    node = Node(MACHINE, grants={"a": grant})

    assert format_cpuset(place(node, container("a", 2000), by).grants["a"].cpus) == expected


def test_strict_reservation() -> None:
    """Nobody runs on reserved CPUs, and one other CPU always stays for those that share."""
    by = policy("0-1,8-9", strictCPUReservation=True)

    assert places(by, MACHINE, container("a", 100), container("b", 2000)) == ["3-7,11-15", "2,10"]
    assert places(by, MACHINE, container("a", 100), container("b", 11_000))[0] in {"3", "11", "15"}
    with pytest.raises(NotEnough, match=r"11 are available; .*one of them must stay shared"):
        places(by, MACHINE, container("b", 12_000))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("distributeCPUsAcrossCores", "fullPcpusOnly"),
        ("distributeCPUsAcrossCores", "distributeCPUsAcrossNUMA"),
        ("distributeCPUsAcrossCores", "preferAlignCPUsByUncoreCache"),
        ("distributeCPUsAcrossNUMA", "preferAlignCPUsByUncoreCache"),
    ],
)
def test_contradictions(one: str, other: str) -> None:
    """Options that exclude each other for the kubelet do so here."""
    ((path, text),) = policy(**{one: True, other: True}).options.contradictions()

    assert (path, text) == ((other,), f"contradicts {one}: choose one of them")
