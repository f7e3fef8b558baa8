"""Containers come into the balloons of their types, which grow and shrink; numbers are those of the peers' tests."""

from dataclasses import replace
from typing import Any

import pytest

from criproxy.errors import BadAnnotation, NotEnough
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Grant
from criproxy.model.machine.topology import CpuKind
from criproxy.placement.options.usable import HostReader
from criproxy.placement.policies.balloons import BalloonsOptions, BalloonsPolicy
from criproxy.simulate.hosts import GIB, machine
from tests.placement.policies.balloons_world import World
from tests.placement.policies.shapes import n4c16, n4c32

ANNOTATION = "balloon.balloons.criproxy.io"


def of_type(name: str, domain: str = "criproxy.io") -> dict[str, Any]:
    """For a container whose pod names the type of its balloon."""
    return {"annotations": {f"balloon.balloons.{domain}": name}}


def world(*types: dict[str, Any], reserved: str = "1", **options: Any) -> World:  # noqa: ANN401
    """Sixteen CPUs and balloons of these types."""
    everything = {"reservedResources": {"cpu": reserved}, "balloonTypes": types, **options}
    return World(n4c16(isolated=everything.pop("isolated", "")), everything)


def test_the_example_of_the_documentation() -> None:
    """What docs/policies/balloons.md says comes where, does."""
    node = world(
        {"name": "database", "minCPUs": 2, "maxCPUs": 4, "preferNewBalloons": True},
        {"name": "batch", "namespaces": ["batch-*"], "maxBalloons": 1, "maxCPUs": 4, "shareIdleCPUsInSame": "system"},
        reserved="cpuset:0",
    )

    assert node.come("dns", 100, namespace="kube-system") == "0"
    assert node.come("db1", 500, **of_type("database")) == "2-3"
    assert node.come("db2", 3000, **of_type("database")) == "4-6"
    assert node.come("night", 1000, namespace="batch-night") == "1,7-15"
    assert (node.come("web1", 1500, namespace="shop"), node.cpus("night")) == ("8-9", "1,7,10-15")
    assert (node.come("web2", 1500, namespace="shop"), node.cpus("night")) == ("8-10", "1,7,11-15")
    node.go("web2")
    assert (node.cpus("web1"), node.cpus("night")) == ("8-9", "1,7,10-15")
    with pytest.raises(NotEnough, match=r"no balloon of type database \(at most 4 CPUs\) has room"):
        node.come("db3", 5000, **of_type("database"))


def test_as_many_balloons_as_allowed() -> None:
    """MaxBalloons and maxCPUs end what a type can take; the refusal says so (nri-plugins' test07)."""
    node = world(
        {"name": "singleton", "minCPUs": 2, "maxCPUs": 2, "minBalloons": 1, "maxBalloons": 1},
        {"name": "two", "maxCPUs": 1, "maxBalloons": 2, "preferNewBalloons": True},
    )
    assert node.come("pod0", 1500, **of_type("singleton")) == node.come("pod1", 500, **of_type("singleton"))
    with pytest.raises(NotEnough, match=r"no balloon of type .* has room"):
        node.come("pod2", 100, **of_type("singleton"))
    assert node.come("pod3", 800, **of_type("two")) != node.come("pod4", 600, **of_type("two"))
    assert node.come("pod5", 300, **of_type("two")) == node.cpus("pod4")
    with pytest.raises(NotEnough, match=r"0m left; maxBalloons allows no more than 2$"):
        node.come("pod6", 300, **of_type("two"))


def test_a_refusal_names_the_cpus_that_other_balloons_hold() -> None:
    """A type with as many balloons as it may have is told of maxBalloons, and of CPUs only if more would help it."""
    node = world({"name": "one", "maxBalloons": 1}, {"name": "rest", "minCPUs": 13}, reserved="cpuset:0")
    node.come("small", 2000, **of_type("one"))
    node.come("large", 100, **of_type("rest"))

    with pytest.raises(NotEnough, match=r"left; 0 CPUs are in no balloon; maxBalloons allows no more than 1$"):
        node.come("more", 1000, **of_type("one"))


def test_groups_share_a_balloon() -> None:
    """Pods with the same labels come together, those of another namespace do not (nri-plugins' test04)."""
    node = world(
        {"name": "grouped", "groupBy": "${pod/namespace}-${pod/labels/instance}", "minCPUs": 2, "minBalloons": 2,
         "preferNewBalloons": True},
        {"name": "default", "groupBy": "ns=$pod/namespace", "preferNewBalloons": True},
    )  # fmt: skip
    g1, g2 = ({"labels": {"instance": name}, **of_type("grouped")} for name in ("g1", "g2"))

    assert node.come("pod0", **g1) == node.come("pod2", **g1)
    node.come("pod1", **g2)
    node.come("pod3", namespace="other", **g1)
    assert len({node.pool(name) for name in ("pod0", "pod1", "pod3")}) == 3
    node.come("pod4", namespace="other")
    node.come("pod5")
    node.come("pod6")
    assert node.pool("pod5") == node.pool("pod6") != node.pool("pod4")


def test_expressions_choose_types_and_preserve_leaves_alone() -> None:
    """A label makes a pod precious, names keep containers from being placed (nri-plugins' test11)."""
    named = [{"key": "name", "operator": "In", "values": ["pod2c1", "pod2c2"]}]
    precious = [{"key": "pod/labels/component", "operator": "Equals", "values": ["precious"]}]
    node = world(
        {"name": "special", "matchExpressions": precious, "minCPUs": 2, "maxCPUs": 2},
        {"name": "default", "namespaces": ["default"], "minCPUs": 1, "maxCPUs": 1},
        preserve={"matchExpressions": named},
    )
    assert len(node.come("pod0", labels={"component": "precious"}).split("-")) == 2
    assert node.pool("pod0") == "special[0]"
    assert node.come("pod1") == node.come("pod2c0", pod="pod2")
    assert node.come("pod2c1", pod="pod2") == "0-15"


@pytest.mark.parametrize(
    ("rules", "overflowing"),
    [
        pytest.param("crirm", "0-2", id="the reserved balloon never grows"),
        pytest.param("nri", "0-2,4-6", id="it grows"),
    ],
)
def test_the_reserved_balloon(rules: str, overflowing: str) -> None:
    """More is asked for than is reserved (the peers' test03, in which they differ)."""
    node = world(
        {"name": "reserved", "namespaces": ["my-exact-name"]},
        {"name": "default", "minCPUs": 1},
        {"name": "full-core", "minCPUs": 2, "maxCPUs": 2},
        reserved="cpuset:0-2",
        reservedPoolNamespaces=["monitor-*"],
        rules=rules,
        annotations={"allow": {"*": ["*"]}},
    )
    assert node.come("pod0", 100, namespace="kube-system") == "0-2"
    assert node.come("pod1", 2000, namespace="monitor-mypods") == node.come("pod2", 100, namespace="my-exact-name")
    node.come("pod5", 3500, **of_type("reserved"))
    assert node.cpus("pod0") == overflowing
    assert len(node.state().balloons["reserved[0]"].keys) == 4


def test_default_shares_the_reserved_cpus_by_crirm() -> None:
    """Without a size of its own the default balloon is the reserved one; with one it takes everybody."""
    assert world(rules="crirm", reserved="cpuset:0-1").come("pod0", 5000) == "0-1"
    node = world({"name": "default", "maxCPUs": 2}, rules="crirm", reserved="cpuset:0-1")
    node.come("pod0", 5000)
    assert node.pool("pod0") == "default[0]"
    assert node.come("pod1", 5000) == node.cpus("pod0") == "2-3"


def test_cpus_are_balanced_and_spread() -> None:
    """nri-plugins' test10: spread or packed onto cores, and next to a NUMA node that all others avoid."""
    node = world(
        {"name": "policydefaults", "minCPUs": 2, "minBalloons": 2},
        {"name": "topo1cores0", "minCPUs": 2, "minBalloons": 2, "preferSpreadOnPhysicalCores": False},
        {"name": "topo1cores1"},
        {"name": "device-node2", "preferCloseToDevices": ["/sys/devices/system/node/node2"]},
        allocatorTopologyBalancing=True,
        preferSpreadOnPhysicalCores=True,
    )
    cores = {cpu: cpu // 2 for cpu in range(16)}

    def places(name: str) -> tuple[int, int, bool]:
        cpus = node.node.grants[name].cpus
        return len(cpus), len({cores[cpu] for cpu in cpus}), bool(cpus & {8, 9, 10, 11})

    node.come("pod0", 100, **of_type("policydefaults"))
    node.come("pod1", 100, **of_type("topo1cores0"))
    for container in ("pod2c0", "pod2c1"):
        node.come(container, 1000, pod="pod2", **of_type("topo1cores1"))
    assert [places(name) for name in ("pod0", "pod1", "pod2c0")] == [(2, 2, False), (2, 1, False), (2, 2, False)]
    node.come("pod4", 3000, **of_type("device-node2"))
    assert places("pod4") == (3, 2, True)
    assert node.cpus("pod4") == "8-10"


def test_loads_keep_off_each_others_caches() -> None:
    """nri-plugins' test15: level 2 caches of four CPUs, loaded by types that avoid each other's."""
    node = world(
        {"name": "avx", "minCPUs": 2, "maxCPUs": 4, "minBalloons": 2, "loads": ["avx"]},
        {"name": "noload", "maxCPUs": 1},
        {"name": "l2load", "loads": ["membw"], "preferSpreadingPods": True, "preferNewBalloons": True},
        {"name": "both", "loads": ["membw", "avx"], "preferSpreadingPods": True, "preferNewBalloons": True},
        loadClasses=[
            {"name": "avx", "level": "core", "overloadsLevelInBalloon": True},
            {"name": "membw", "level": "l2cache"},
        ],
    )
    caches = tuple(frozenset(range(first, first + 4)) for first in (0, 4, 8, 12))
    node.topology = replace(node.topology, l2_groups=caches)
    node.node = node.node.replace(topology=node.topology)
    assert [node.balloons()[f"avx[{number}]"] for number in (0, 1)] == ["0,2", "4,6"]
    cache_of = {cpu: index for index, cache in enumerate(caches) for cpu in cache}

    def cache(name: str) -> set[int]:
        return {cache_of[cpu] for cpu in node.node.grants[name].cpus}

    node.come("pod0c0", 500, pod="pod0", **of_type("l2load"))
    node.come("pod0c1", 500, pod="pod0", **of_type("l2load"))
    assert cache("pod0c0").isdisjoint(cache("pod0c1"))
    node.come("pod1", 1000, **of_type("noload"))
    assert node.cpus("pod1") in {"1", "3", "5", "7"}
    node.come("pod3", 100, **of_type("both"))
    node.come("pod4", 100, **of_type("both"))
    assert cache("pod3").isdisjoint(cache("pod4"))
    node.go("pod0c0", "pod0c1", "pod3", "pod4")
    node.come("pod7", 4000, **of_type("both"))
    assert len({cpu // 2 for cpu in node.node.grants["pod7"].cpus}) == 4


def test_isolated_cpus_are_for_those_who_want_them() -> None:
    """Others take them last, and they are lent to nobody."""
    node = world(
        {"name": "quiet", "minCPUs": 1, "preferIsolCpus": True, "namespaces": ["quiet"]},
        {"name": "default", "shareIdleCPUsInSame": "system"},
        isolated="8-9",
    )
    assert node.come("pod0", 1000, namespace="quiet") == "8"
    assert node.come("pod1", 1000, namespace="quiet") == "8-9"
    node.go("pod1")
    node.come("pod2", 1000)
    assert not node.node.grants["pod2"].cpus & {8, 9}


@pytest.mark.parametrize(
    ("level", "cpus"),
    [
        pytest.param("system", "1-31", id="system"),
        pytest.param("package", "1-15", id="package"),
        pytest.param("die", "1-7", id="die"),
        pytest.param("numa", "1-3", id="numa"),
        pytest.param("core", "2-3", id="core"),
        pytest.param("thread", "2", id="thread"),
    ],
)
def test_idle_cpus_are_lent(level: str, cpus: str) -> None:
    """Those in the same part of the machine; when another balloon needs them, they are taken back."""
    options = {
        "reservedCpus": "0",
        "balloonTypes": [
            {"name": "lent", "shareIdleCPUsInSame": level, "preferCloseToDevices": ["/sys/devices/system/cpu/cpu2"]},
            {"name": "all", "namespaces": ["all"]},
        ],
    }
    node = World(n4c32(), options)
    assert node.come("pod0", 500, **of_type("lent")) == cpus
    node.come("pod1", 30000, namespace="all")
    assert node.cpus("pod0") == "2"
    node.go("pod1")
    assert node.cpus("pod0") == cpus


def test_threads_are_hidden() -> None:
    """By the type or the annotation; the other threads stay the balloon's, and nobody else gets them."""
    node = world({"name": "quiet", "hideHyperthreads": True, "preferNewBalloons": True, "minCPUs": 4})
    assert node.come("pod0", 1000, **of_type("quiet")) == "4,6"
    shown = {ANNOTATION: "quiet", "hide-hyperthreads.criproxy.io": "false"}
    assert node.come("pod1", 1000, annotations=shown) == "8-11"
    assert node.balloons()["quiet[0]"] == "4-7"


def test_annotations_of_all_domains_name_a_type() -> None:
    """Ours and the peers'; one that is not there is refused with the names that are."""
    node = world({"name": "fast", "minCPUs": 2})
    for number, domain in enumerate(("criproxy.io", "cri-resource-manager.intel.com", "resource-policy.nri.io")):
        node.come(f"pod{number}", 100, **of_type("fast", domain))
        assert node.pool(f"pod{number}") == "fast[0]"
    with pytest.raises(
        BadAnnotation, match=r"names balloon type 'fats', which does not exist; types are: reserved, fast, default"
    ):
        node.come("pod9", 100, **of_type("fats"))


def test_a_type_that_is_not_for_this_node() -> None:
    """``maxCPUs: -1`` refuses its containers."""
    node = world({"name": "elsewhere", "maxCPUs": -1, "minBalloons": 1})
    with pytest.raises(NotEnough, match="may not run here: maxCPUs of balloon type elsewhere is -1"):
        node.come("pod0", 100, **of_type("elsewhere"))


def test_resizes_stay_in_the_balloon() -> None:
    """It grows and shrinks around its containers; what does not fit says where it is."""
    node = world({"name": "fit", "namespaces": ["*"], "maxCPUs": 4})
    node.come("pod0", 1000)
    node.come("pod1", 1000)
    before = node.node.grants["pod0"].cpus
    assert node.resize("pod1", 2500) == node.cpus("pod0")
    assert before < node.node.grants["pod0"].cpus
    node.resize("pod1", 500)
    assert len(node.node.grants["pod0"].cpus) == 2
    with pytest.raises(NotEnough, match=r"it is in fit\[0\] on CPUs .*, and moves to no other NUMA node"):
        node.resize("pod1", 6000)


def spilt(limit_bytes: int | None = GIB) -> World:
    """Two NUMA nodes of two CPUs; ``old`` was in balloon ``default`` on CPU 2 when that had to take CPUs of node 0."""
    node = World(machine(nodes=2, cores=2, threads=1), {"balloonTypes": [{"name": "first", "namespaces": ["first"]}]})
    node.come("before", 2000, namespace="first")
    node.come("old", 1000, memory_limit_bytes=limit_bytes)
    node.end("before")
    assert node.cpus("old") == "2"
    return node


def test_a_balloon_shrinks_to_the_cpus_next_to_the_memory_of_who_stays() -> None:
    """That does not follow when others come and go: CPUs far from it are the first to be given up."""
    node = spilt()
    assert node.come("new", 2000) == "0-2"
    node.go("new")

    assert (node.cpus("old"), node.node.grants["old"].mems) == ("2", frozenset({1}))


def test_who_has_memory_everywhere_holds_nobody_away_from_theirs() -> None:
    """A balloon shrinks to CPUs next to memory that all who stay have, before those next to that of some."""
    node = spilt()
    node.come("wide", 1000, memory_limit_bytes=GIB)
    node.come("third", 1000, memory_limit_bytes=GIB)
    node.come("new", 1000)
    assert [node.cpus("old"), len(node.node.grants["third"].mems)] == ["0-3", 2]
    node.go("new", "wide")
    assert node.cpus("old") in ("0,2", "1-2", "2-3")
    node.go("third")

    assert node.cpus("old") == "2"


def test_faster_cores_for_those_who_want_them() -> None:
    """On a machine with two kinds of cores."""
    node = world({"name": "fast", "preferCoreType": "performance"}, {"name": "slow", "preferCoreType": "efficient"})
    slow, fast = frozenset(range(8)), frozenset(range(8, 16))
    node.topology = replace(node.topology, cpu_kinds=(CpuKind(slow, 500), CpuKind(fast, 1024)))
    node.node = node.node.replace(topology=node.topology)
    node.come("pod0", 2000, **of_type("fast"))
    node.come("pod1", 2000, **of_type("slow"))
    assert node.node.grants["pod0"].cpus <= fast
    assert node.node.grants["pod1"].cpus <= slow


def test_close_to_a_device_of_the_host() -> None:
    """What the host says about its path counts; other types keep off its CPUs. One that is not there is noted."""
    card, gone = "/sys/class/net/eth0", "/sys/class/net/eth1"
    types: list[dict[str, Any]] = [
        {"name": "dpdk", "preferCloseToDevices": [card, gone]},
        {"name": "other", "preferNewBalloons": True},
    ]
    host = HostReader(lambda _: None, lambda path: parse_cpuset("4-7") if path == card else None)
    options = BalloonsOptions.model_validate({"reservedCpus": "0", "balloonTypes": types}).resolved(host)
    node = world(*types, reserved="cpuset:0")
    node.policy = BalloonsPolicy(options)

    assert node.come("pod0", 2000, **of_type("dpdk")) == "4-5"
    others = [node.come(f"pod{number}", 3000, **of_type("other")) for number in range(1, 4)]
    assert not any(parse_cpuset(cpus) & parse_cpuset("4-7") for cpus in others)
    assert [text for _, text in options.misfits(n4c16())] == [f"{gone} is not in this machine, or has no CPUs"]


def test_a_balloon_shrinks_where_it_is_lent_what_it_gives_up() -> None:
    """Its containers may run where they did, and its own CPUs are fewer: others may have the rest."""
    wide = {"name": "wide", "namespaces": ["*"], "shareIdleCPUsInSame": "system"}
    node = world(wide, {"name": "own"}, {"name": "default", "maxBalloons": 1}, reserved="cpuset:0")
    node.come("pod0", 1000)
    node.come("pod1", 14_000)
    assert (node.cpus("pod0"), node.balloons()["wide[0]"]) == ("1-15", "1-15")
    node.go("pod1")

    assert (node.cpus("pod0"), len(node.state().balloons["wide[0]"].home)) == ("1-15", 1)
    node.come("pod2", 14_000, **of_type("own"))
    assert len(node.node.grants["pod0"].cpus) == 1


def test_cpus_may_be_left_alone() -> None:
    """With ``pinCPU: false`` a balloon still has CPUs, and its containers may use all."""
    node = world({"name": "fit", "namespaces": ["*"]}, pinCPU=False)
    assert node.come("pod0", 1000) == "0-15"
    assert len(node.state().balloons["fit[0]"].home) == 1


def test_cpus_of_strangers_are_taken_last() -> None:
    """Containers of an earlier policy, and those that criproxy only watches, are in no balloon."""
    node = world({"name": "own", "preferNewBalloons": True})
    node.come("old", 1000, **of_type("own"))
    stranger = Grant(parse_cpuset("1-5"), node.topology.mems)
    node.node = node.node.replace(grants={"old": stranger})

    assert node.come("new", 2000, **of_type("own")) == "6-7"
    assert node.come("last", 10000, **of_type("own")) == "4-5,8-15"


def test_a_pod_goes_with_all_its_containers() -> None:
    """They leave one after the other, and none of them is known any more when the first one does."""
    node = world({"name": "fit", "namespaces": ["*"]})
    for name in ("c0", "c1", "c2"):
        node.come(name, 1000, pod="pod", annotations={"hide-hyperthreads.criproxy.io": "true"})
    node.come("other", 1000)
    node.end("pod")

    assert (list(node.node.grants), node.balloons()["fit[0]"]) == (["other"], node.cpus("other"))


@pytest.mark.parametrize(
    ("reserved", "cpus", "expected"),
    [
        pytest.param("0", "10-11", "10-11", id="its-own"),
        pytest.param("0,10", "10-11", "8-9", id="next-to-its-memory"),
        pytest.param("0", "6-15", "8-9", id="of-those-that-it-shared-next-to-its-memory"),
    ],
)
def test_who_comes_from_another_policy_keeps_its_cpus(reserved: str, cpus: str, expected: str) -> None:
    """A new balloon is made of the CPUs that its container had, or next to its memory, which does not move."""
    node = world({"name": "default", "preferNewBalloons": True}, reserved=f"cpuset:{reserved}")
    node.come("a", 2000)
    node.node = node.node.replace(grants={"a": Grant(parse_cpuset(cpus), frozenset({2}), pool="elsewhere")})

    node.change(apply_all=True)

    assert (node.cpus("a"), node.node.grants["a"].mems) == (expected, frozenset({2}))
