"""Pod-level resources: containers of one pod share its exclusive CPUs, which are at most its total."""

from dataclasses import dataclass, field, replace

import pytest

from criproxy.errors import NotEnough
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.grant import Applied, Change, Grant
from criproxy.model.node import Node, without
from criproxy.model.resources import CfsQuota
from criproxy.model.workload import Container, ContainerState
from criproxy.placement import events as ev
from criproxy.placement.invariants import violations
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.pod_total import asks_milli, total_shared_by
from criproxy.placement.rules.pods import recounted
from criproxy.simulate.hosts import machine
from tests.placement.lives import pod_cpus
from tests.placement.rules.test_kept import MACHINE, build, container, exits, key_of, live, pod, runs

A, B, C = container("a", 2), container("b", 2), container("c", 2)
ALL_BUT_0 = parse_cpuset("1-7")
SMALL = replace(container("small", 0), cpu_milli=500)


@pytest.fixture(params=["static", "topology-aware"])
def policy(request: pytest.FixtureRequest) -> Policy:
    """Each policy that gives CPUs to one container alone, by what it asks for."""
    return build(request.param)


def places(node: Node) -> dict[str, str]:
    """By name of the container, where it may run."""
    return {node.containers[key].name: format_cpuset(grant.cpus) for key, grant in node.grants.items()}


def resized(each: Container, cpus: int) -> ev.Event:
    """Another size for a container that runs."""
    return ev.ContainerResized(key_of(each), replace(each.sizes, cpu_milli=cpus * 1000))


def resized_with_pod(each: Container, cpus: int) -> ev.ContainerResized:
    """Another limit for a container without a size of its own: that of its pod."""
    sizes = replace(each.sizes, cpu_milli=0, of_pod=True, cpu_limit_milli=cpus * 1000)
    return ev.ContainerResized(key_of(each), replace(sizes, cpu_quota=CfsQuota.of_limit(cpus * 1000)))


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
def test_one_with_whole_cpus_of_its_own_leaves_the_rest(policy: Policy, *, is_first: bool) -> None:
    """Together they have the total and not more; those without a size share what it leaves."""
    own = container("own", 1)
    order = (own, A, B) if is_first else (A, B, own)
    node = live(policy, pod("p", 3), *(runs(own if each is own else replace(each, cpu_milli=3000)) for each in order))

    assert places(node)["a"] == places(node)["b"] != places(node)["own"]
    assert [len(node.grants[key_of(each)].exclusive) for each in (own, A, B)] == [1, 2, 2]
    assert len(pod_cpus(node, "p")) == 3


def test_an_init_container_of_the_total_and_the_app_are_not_pod_level(policy: Policy) -> None:
    """They do not run at the same time."""
    init, main, side = container("init", 2), container("main", 1), container("side", 1)
    node = live(policy, pod("p", 2), runs(init), exits(init), runs(main), runs(side))

    assert len(set(places(node).values())) == 2
    assert len(pod_cpus(node, "p")) == 2


def test_a_crash_in_a_pod_level_pod(policy: Policy) -> None:
    """It comes back to the others; when all have crashed, the pod finds its CPUs."""
    node = live(policy, pod("p", 2), runs(A), runs(B))
    had = places(node)
    again = container("a", 2, 1)
    node = live(policy, exits(A), runs(again), node=node)
    assert places(node)["a"] == had["a"]

    node = live(policy, exits(again), exits(B), runs(container("b", 2, 1)), runs(container("a", 2, 2)), node=node)
    assert places(node) == had
    assert not live(policy, ev.PodStopped("p-0"), node=node).exclusive_cpus


def test_a_pod_level_pod_grows_and_shrinks_in_place(policy: Policy) -> None:
    """As the kubelet does it: the pod first when it grows, last when it shrinks."""
    node = live(policy, pod("p", 2), runs(A), runs(B))
    node = live(policy, ev.PodResized("p-0", 3000), resized_with_pod(A, 3), resized_with_pod(B, 3), node=node)
    assert len(set(places(node).values())) == 1
    assert len(pod_cpus(node, "p")) == 3

    node = live(policy, resized_with_pod(A, 1), resized_with_pod(B, 1), ev.PodResized("p-0", 1000), node=node)
    assert len(set(places(node).values())) == 1
    assert len(pod_cpus(node, "p")) == 1


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(ev.PolicyChanged(apply_all=True), id="apply-all"),
        pytest.param(ev.PolicyChanged(), id="apply-new"),
        pytest.param(ev.TopologyChanged(machine(nodes=1, cores=7, threads=1)), id="cpus-offline"),
    ],
)
def test_they_stay_together_when_all_are_placed_anew(policy: Policy, event: ev.Event) -> None:
    """Another policy, another machine."""
    node = live(policy, pod("p", 2), runs(A), runs(B), event)

    assert len(set(places(node).values())) == 1
    assert len(pod_cpus(node, "p")) == 2


def test_none_of_them_gets_a_part_of_the_cpus_where_the_pod_has_no_place(policy: Policy) -> None:
    """A new policy has too few CPUs for the pod, and enough for one of its containers: no CPU comes to have two owners.

    Who finds no place shares with everybody, and the last one keeps what it has.
    """
    small = build("static", availableResources={"cpu": "cpuset:0-1"})
    node = live(policy, pod("p", 2), runs(A), runs(B))
    assert len(set(places(node).values())) == 1

    node = live(small, ev.PolicyChanged(apply_all=True), node=node)

    assert violations(node) == []
    assert not node.owned_cpus


def test_a_lost_store_finds_them_together(policy: Policy) -> None:
    """Two that run on the same CPUs, with the total that their stamps tell."""
    where = Applied(frozenset({3, 4}), frozenset({0}))
    there = tuple(
        ev.Present(replace(each, key=key_of(each), reservation=each.key, state=ContainerState.RUNNING), where)
        for each in (A, B)
    )
    node = live(policy, ev.Found((pod("p", 2).pod,), there))

    assert places(node) == {"a": "3-4", "b": "3-4"}
    assert len(pod_cpus(node, "p")) == 2


def test_who_is_left_keeps_the_cpus_until_it_ends(policy: Policy) -> None:
    """Then all of them are free."""
    node = live(policy, pod("p", 2), runs(A), runs(B), exits(A), ev.ContainerGone(key_of(A)))
    assert len(pod_cpus(node, "p")) == 2

    node = live(policy, exits(B), ev.PodStopped("p-0"), node=node)
    assert node.shared_cpus == MACHINE.cpus


def test_who_is_left_has_what_it_asks_for(policy: Policy) -> None:
    """It had the CPUs of the whole pod only because of the one that has ended; these are kept for that one."""
    small, whole, other = SMALL, container("whole", 2), replace(SMALL, key="r-w-0-a-0", pod="w-0")
    node = live(policy, pod("w"), runs(other), pod("p", 2), runs(small), runs(whole))
    had = places(node)
    assert had["small"] == had["whole"]

    left = live(policy, exits(whole), node=node)
    assert not left.grants[key_of(small)].exclusive

    assert places(live(policy, runs(container("whole", 2, 1)), node=left)) == had


def test_two_that_are_left_are_apart(policy: Policy) -> None:
    """The one that asked for the whole pod was never made."""
    first, second, whole = replace(SMALL, key="r-p-0-s1-0", name="s1"), container("one", 1), container("whole", 2)
    node = live(policy, pod("p", 2), runs(first), runs(second))
    had = places(node)
    during = live(policy, ev.ContainerCreating(whole), node=node)
    assert places(during)["s1"] == places(during)["whole"] != places(during)["one"]

    assert places(live(policy, ev.ContainerGone(whole.key), node=during)) == had


@pytest.mark.parametrize("milli", [2000, 3000], ids="{}m".format)
def test_a_resize_whose_total_was_not_told_makes_no_pod_level_pod(policy: Policy, milli: int) -> None:
    """The kubelet up to 1.35 does not repeat it: each has CPUs of its own, and has them when the total is told."""
    one, other = container("a", 1), container("b", 1)
    bigger = ev.ContainerResized(key_of(one), replace(one.sizes, cpu_milli=milli))
    node = live(policy, pod("p", 2), runs(one), runs(other), bigger)
    count = milli // 1000
    assert {name: len(parse_cpuset(cpus)) for name, cpus in places(node).items()} == {"a": count, "b": 1}
    assert len(pod_cpus(node, "p")) == count + 1

    again = replace(container("a", count, 1))
    node = live(policy, exits(one), ev.PodResized("p-0", milli + 1000), runs(again), node=node)
    assert len(pod_cpus(node, "p")) == count + 1


@pytest.mark.parametrize("total", [3, 0])
def test_a_create_of_unknown_outcome_and_the_next_attempt_are_not_pod_level(policy: Policy, total: int) -> None:
    """Each has its own CPUs until the runtime says that the older one never ran: then its place is free at once."""
    first, again, other = container("a", 2), container("a", 2, 1), container("b", 1)
    node = live(policy, pod("p", total), ev.ContainerCreating(first), ev.UnknownOutcome(first.key), runs(again))
    created = ev.ContainerCreated(first.key, key_of(first))
    node = live(policy, created, created, node=node)
    assert len(pod_cpus(node, "p")) == 2
    node = live(policy, runs(other), node=node)

    assert node.containers[key_of(first)].state is ContainerState.EXITED
    assert {name: len(parse_cpuset(cpus)) for name, cpus in places(node).items()} == {"a": 2, "b": 1}
    assert not any(each.of_pod for each in node.containers.values())
    assert len(pod_cpus(node, "p")) == 3
    assert len(node.exclusive_cpus) == 3


def test_more_cpus_together_than_the_total_are_noticed(policy: Policy) -> None:
    """What the containers of a pod share is compared with its total, also where nothing is kept for it."""
    node = live(policy, pod("p", 2), runs(A), runs(B))
    larger = {key: replace(grant, cpus=ALL_BUT_0, exclusive=ALL_BUT_0) for key, grant in node.grants.items()}

    assert violations(node.replace(grants=larger)) == ["the pod p shares CPUs 1-7, and asks for 2000m in total"]

    key = next(iter(larger))  # it has grown, and the pod is about to
    grown = {**node.containers, key: replace(node.containers[key], cpu_milli=3000)}
    assert not violations(node.replace(grants=larger, containers=grown))


def test_siblings_give_up_what_the_largest_leaves_under_a_policy_without_exclusive_cpus() -> None:
    """Such a policy is not asked about them: they have no more than what they or their pod ask for.

    One of them that shares its CPUs with nobody keeps these.
    """
    big, a, b, own = container("big", 3), container("a", 3), container("b", 3), container("own", 1)
    node = live(build("static"), pod("p", 3), runs(big), runs(a), runs(b), runs(own))
    assert len(pod_cpus(node, "p")) == 3
    alone = replace(node.grants[key_of(own)], cpus=frozenset({7}), exclusive=frozenset({7}))
    small = {key: replace(each, cpu_total_milli=2000) for key, each in node.pods.items()}
    node = node.replace(pods=small, grants={**node.grants, key_of(own): alone})

    after = live(build("pools"), resized(big, 0), node=node)

    assert len(pod_cpus(after, "p")) == 2
    assert after.grants[key_of(own)] == alone
    assert not after.grants["p-0-a-0"].exclusive
    assert len(after.grants["p-0-b-0"].cpus) == 1


def test_an_unplaced_sibling_leaves_less_to_share(policy: Policy) -> None:
    """What `status` shows is what the containers get when they are placed again: without its whole CPUs."""
    own, shared = container("own", 1), [replace(each, cpu_milli=3000) for each in (A, B)]
    node = live(policy, pod("p", 3), runs(own), *map(runs, shared))
    unplaced = node.replace(grants=without(node.grants, [key_of(own)]))
    first, second = (unplaced.containers[key_of(each)] for each in shared)

    assert asks_milli(unplaced, first) == 2000
    assert [total_shared_by(unplaced, each) for each in (first, second)] == [2000, 2000]


@dataclass(frozen=True)
class Refusing:
    """A policy that refuses one container, and remembers which ones it was asked for."""

    policy: Policy
    name: str
    asked: list[str] = field(default_factory=list)

    def place(self, node: Node, container: Container) -> Change:
        """As the other policy."""
        self.asked.append(container.name)
        if container.name == self.name:
            raise NotEnough(self.name)
        return self.policy.place(node, container)

    def release(self, node: Node, left: Grant) -> Change:
        """As the other policy."""
        return self.policy.release(node, left)


@pytest.mark.parametrize("refused", ["none", "b", "c"])
def test_a_refusal_keeps_no_sibling_from_the_place_for_its_count(policy: Policy, refused: str) -> None:
    """Each container whose count changes is placed again, whatever becomes of the others."""
    node = live(policy, pod("p", 4), *(runs(replace(each, cpu_milli=4000)) for each in (A, B, C)))
    before = {"b": 3000, "c": 2000}
    counts = {key: replace(each, cpu_milli=before.get(each.name, 4000)) for key, each in node.containers.items()}
    asked = Refusing(policy, refused)

    after, _ = recounted(node.replace(containers=counts), "p-0", asked)

    assert sorted(asked.asked) == ["b", "c"]
    assert {each.name: each.cpu_milli for each in after.containers.values()} == {"a": 4000, "b": 2, "c": 2}
