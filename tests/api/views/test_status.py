"""What `status` says of a node: every container, where it is and should be, the CPUs by NUMA node, what is wrong."""

from dataclasses import replace
from typing import Any

import pytest

from criproxy.api.views.situation import Situation
from criproxy.api.views.status import rows, summary
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, CpuQuota, Grant
from criproxy.model.node import Node
from criproxy.model.text.notices import Notice, Trouble
from criproxy.model.workload import Container, ContainerState, Pod, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import (
    ContainerCreated,
    ContainerCreating,
    ContainerExited,
    ContainerStarted,
    Event,
    PodCreated,
    PodNotReady,
    UnknownOutcome,
    UpdateApplied,
)
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.simulate.hosts import machine
from tests.node.world import problems
from tests.placement.policies.balloons_world import World

POLICY = StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0"}))
RESERVED = frozenset({0})
EMPTY = Node(machine(nodes=2, cores=4, threads=1))
OWNER = Container(
    key="r-own",
    pod="s1",
    name="main",
    pod_name="trader",
    namespace="shop",
    qos=QosClass.GUARANTEED,
    cpu_milli=2000,
    cpu_limit_milli=2000,
    memory_limit_bytes=1 << 30,
)
SHARER = Container(key="r-share", pod="s2", name="side", pod_name="web", namespace="shop", qos=QosClass.BURSTABLE)
OTHER = Container(key="r-other", pod="s3", name="main", pod_name="dns", namespace="kube-system", cpu_milli=100)
LIFE: list[Event] = [
    PodCreated(Pod(key="s1", name="trader", namespace="shop")),
    ContainerCreating(SHARER),
    ContainerCreating(OTHER),
    ContainerCreated("r-share", "a" * 64),
    ContainerStarted("a" * 64),
    ContainerCreated("r-other", "b" * 64),
    ContainerStarted("b" * 64),
    ContainerCreating(OWNER),
    ContainerCreated("r-own", "c" * 64),
]


def after(*more: Event) -> Node:
    """The node after `LIFE` and *more*."""
    node = EMPTY
    for event in (*LIFE, *more):
        node = step(node, event, POLICY).node
    return node


def settled(node: Node) -> Node:
    """Everybody got what was granted."""
    for key, grant in node.grants.items():
        node = step(node, UpdateApplied(key, Applied(grant.cpus, grant.mems)), POLICY).node
    return node


def situation(node: Node, **more: object) -> Situation:
    """*node* under the policy static."""
    return Situation(node=node, policy="static", reserved=RESERVED, **more)  # type: ignore[arg-type]


def test_a_row_says_who_what_and_where() -> None:
    """All that is known of an owner; what it has not is empty."""
    (row,) = rows(situation(settled(after())), exclusive=True)

    assert {key: value for key, value in row.items() if value} == {
        "id": "c" * 64,
        "reservation": "r-own",
        "namespace": "shop",
        "pod": "trader",
        "container": "main",
        "state": "created",
        "qos": "Guaranteed",
        "cpu_request_milli": [2000, 2000],
        "cpu_limit_milli": 2000,
        "memory_limit_bytes": 1 << 30,
        "placed": True,
        "cpus": "1-2",
        "mems": "0",
        "exclusive_cpus": "1-2",
        "cpu_quota": "left",
        "applied_cpus": "1-2",
        "applied_mems": "0",
        "in_place": True,
    }


def test_a_reservation_has_no_id() -> None:
    """What the runtime has not made yet is shown under the reservation only."""
    newcomer = Container(key="r-new", pod="s4", name="new")
    (row,) = (row for row in rows(situation(after(ContainerCreating(newcomer)))) if row["container"] == "new")

    assert (row["id"], row["reservation"], row["state"]) == ("", "r-new", "creating")


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        pytest.param({}, ["dns/main", "trader/main", "web/side"], id="all-in-order"),
        pytest.param({"namespace": "shop"}, ["trader/main", "web/side"], id="namespace"),
        pytest.param({"pod": "web"}, ["web/side"], id="pod"),
        pytest.param({"exclusive": True}, ["trader/main"], id="exclusive"),
        pytest.param({"namespace": "kube-system", "exclusive": True}, [], id="both"),
    ],
)
def test_filters(wanted: dict[str, Any], names: list[str]) -> None:
    """Rows come by namespace, pod and name, and filters leave out the others."""
    assert [f"{row['pod']}/{row['container']}" for row in rows(situation(after()), **wanted)] == names


def test_cpus_of_balloons_are_not_free() -> None:
    """No other container gets them, although no container has them exclusively; those that are lent are free."""
    batch = {"name": "batch", "namespaces": ["batch"], "minCPUs": 2, "shareIdleCPUsInSame": "system"}
    world = World(EMPTY.topology, {"reservedCpus": "0", "balloonTypes": [batch]})
    world.come("job", 100, namespace="batch")
    world.come("web", 1000)

    values = summary(Situation(node=world.node, policy="balloons", placer=world.policy, reserved=RESERVED))

    assert (world.cpus("job"), world.cpus("web")) == ("1-2,4-7", "3")
    assert [each["free_cpus"] for each in values["numa_nodes"]] == ["", "4-7"]


def test_cpus_are_told_for_the_node_and_for_each_numa_node() -> None:
    """What is owned, what is not, and what the next owner can find: reserved CPUs are not among that."""
    values = summary(situation(after()))

    assert values["cpus"]["exclusive"] == "1-2"
    assert values["cpus"]["shared"] == "0,3-7"
    assert values["cpus"]["free"] == "3-7"
    assert values["cpus"]["reserved"] == "0"
    assert [(n["id"], n["exclusive_cpus"], n["shared_cpus"], n["free_cpus"]) for n in values["numa_nodes"]] == [
        (0, "1-2", "0,3", "3"),
        (1, "", "4-7", "4-7"),
    ]


def test_totals_count_who_is_not_where_they_belong() -> None:
    """Both sharers still have the owner's CPUs; one of them, of unknown outcome, is counted as that, too."""
    totals = summary(situation(after(UnknownOutcome("a" * 64))))["totals"]

    found = {name: count for name, count in totals.items() if count}
    assert found == {"pods": 1, "containers": 3, "exclusive": 1, "shared": 2, "unknown": 1, "not_in_place": 2}


def test_who_has_exited_is_in_nobody_s_way() -> None:
    """An exited container is in place wherever it was."""
    node = settled(after(ContainerExited("c" * 64)))

    assert problems(situation(node)) == {"problems": [], "under_way": [], "found": []}
    assert summary(situation(node))["totals"]["exited"] == 1


def test_a_sandbox_that_has_ended_is_no_pod() -> None:
    """The runtime keeps it until it is removed, and nothing runs in it any more."""
    assert summary(situation(after()))["totals"]["pods"] == 1
    assert summary(situation(after(PodNotReady("s1"))))["totals"]["pods"] == 0


def test_an_update_under_way_is_told_apart_from_one_that_fails() -> None:
    """The check waits for the one and complains of the other, with the last error."""
    trouble = {"a" * 64: Trouble("UpdateContainerResources: UNAVAILABLE: no", 3)}
    found = problems(situation(after(), troubles=trouble))

    assert found["under_way"] == ["kube-system/dns/main should be on CPUs 0,3-7 but is on 0-7"]
    assert found["problems"] == [
        (
            "shop/web/side should be on CPUs 0,3-7 but is on 0-7 (3 updates failed, the last: "
            "UpdateContainerResources: UNAVAILABLE: no)"
        )
    ]


@pytest.mark.parametrize(
    ("mems", "quota", "text"),
    [
        pytest.param("1", CpuQuota.LEFT, "should have memory of NUMA node 0 but has memory of 1", id="memory"),
        pytest.param("0", CpuQuota.LIFTED, "should run without CFS quota", id="quota"),
    ],
)
def test_what_is_not_as_granted_is_told(mems: str, quota: CpuQuota, text: str) -> None:
    """The CPUs are right and something else is not."""
    node, key = settled(after()), "c" * 64
    node = node.replace(grants={**node.grants, key: replace(node.grants[key], quota=quota)})
    node = step(node, UpdateApplied(key, Applied(parse_cpuset("1-2"), parse_cpuset(mems))), POLICY).node

    assert problems(situation(node))["under_way"] == [], "it does not run yet"
    node = step(node, ContainerStarted(key), POLICY).node
    assert problems(situation(node))["under_way"] == [f"shop/trader/main {text}"]


@pytest.mark.parametrize(
    ("places", "text"),
    [
        pytest.param(
            {"mig": "0-7", "few": "1"},
            "no CPU can become exclusive to another container: CPUs 1-7 could, but containers run there that an update "
            "could take a card away from: lab/mig/main, lab/few/main",
            id="none-is-left",
        ),
        pytest.param({"mig": "0-6"}, None, id="some-are-left"),
        pytest.param({"mig": "0"}, None, id="on-reserved-cpus-only"),
        pytest.param({"mig": "0-7", "own": "0-7"}, None, id="another-container-is-on-them-too"),
    ],
)
def test_a_notice_names_containers_with_cards_that_withhold_all_cpus(places: dict[str, str], text: str | None) -> None:
    """It is no problem: a healthy node with pods that have MIG devices may never have exclusive CPUs."""
    containers = {
        name: Container(key=name, pod=name, name="main", pod_name=name, namespace="lab", stays=name != "own")
        for name in places
    }
    applied = {name: Applied(parse_cpuset(cpus), EMPTY.topology.mems) for name, cpus in places.items()}
    node = EMPTY.replace(containers=containers, applied=applied)

    found = [each for each in summary(situation(node))["notices"] if each["kind"] == "withheld"]

    assert [(each["wrong"], each["text"]) for each in found] == ([(False, text)] if text else [])
    assert not problems(situation(node))["problems"]
    assert not summary(Situation(node=node, policy="none"))["notices"][1:]
    assert "withheld" not in [each["kind"] for each in summary(situation(node.replace(released="by root")))["notices"]]


def test_the_check_finds_broken_invariants_and_notices() -> None:
    """Two owners of a CPU are found, and so is what the controller says is wrong; what was chosen is not wrong."""
    node = settled(after())
    own = parse_cpuset("1-2")
    node = node.replace(grants={**node.grants, "a" * 64: Grant(own, frozenset({0}), own)})
    notices = [Notice("store", "the disk is full"), Notice("released", "released by hand", wrong=False)]

    found = problems(situation(node, notices=notices))["problems"]

    assert found[0] == "the disk is full"
    assert "CPU 1 is exclusive to both shop/web/side and shop/trader/main" in found
    assert not any("released" in text for text in found)


@pytest.mark.parametrize(("policy", "kinds"), [("static", []), ("none", ["policy-none"])])
def test_the_policy_none_is_told(policy: str, kinds: list[str]) -> None:
    """Who wonders why nothing is placed finds out."""
    notices = summary(Situation(node=EMPTY, policy=policy))["notices"]

    assert [notice["kind"] for notice in notices] == kinds


@pytest.mark.parametrize(
    ("node", "follows", "expected"),
    [
        pytest.param(after(), False, True, id="nobody follows who comes and goes"),
        pytest.param(after(), True, False, id="calls are followed"),
        pytest.param(EMPTY, False, False, id="nobody is known"),
    ],
)
def test_a_list_that_is_not_kept_up_to_date_says_so(node: Node, follows: bool, expected: bool) -> None:
    """Under the policy none calls pass unseen, once no container has a place."""
    (notice,) = summary(Situation(node=node, policy="none", follows=follows))["notices"]

    text = "; criproxy does not see when containers start or end, so its list may be out of date"
    assert (text in notice["text"]) is expected


def test_a_container_that_nobody_places_is_in_place() -> None:
    """One without a grant belongs where it is."""
    found = Container(key="d" * 64, pod="s9", name="x", state=ContainerState.RUNNING)
    node = EMPTY.replace(containers={found.key: found})
    (row,) = rows(situation(node))

    assert (row["placed"], row["in_place"]) == (False, True)
    assert summary(situation(node))["totals"]["unplaced"] == 1
