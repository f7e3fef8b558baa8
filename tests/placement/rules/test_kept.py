"""CPUs of a container that ended stay with its pod: it finds them again, within the pod's total, and nothing leaks."""

import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import NotEnough
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.grant import Kept
from criproxy.model.node import Node
from criproxy.model.workload import Container, Miss, Missed, Pod, QosClass
from criproxy.placement import events as ev
from criproxy.placement.answers.choice import weighed
from criproxy.placement.decision import Decision
from criproxy.placement.engine import placing, step
from criproxy.placement.invariants import violations
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of
from tests.placement.lives import pod_cpus

MACHINE = machine(nodes=1, cores=8, threads=1)
GUARANTEED = QosClass.GUARANTEED


def build(name: str, **options: object) -> Policy:
    """The policy *name*, which reserves CPU 0."""
    return policy_of(name, {"reservedCpus": "0", **options})


@pytest.fixture(params=["static", "topology-aware"])
def policy(request: pytest.FixtureRequest) -> Policy:
    """Each policy that gives CPUs to one container alone, by what it asks for."""
    return build(request.param)


def pod(name: str, total: int = 0, attempt: int = 0) -> ev.PodCreated:
    """A Guaranteed pod with so many CPUs as a whole; 0: nobody said."""
    key = f"{name}-{attempt}"
    return ev.PodCreated(
        Pod(key=key, uid=name, name=name, attempt=attempt, qos=GUARANTEED, cpu_total_milli=total * 1000)
    )


def container(name: str, cpus: int, attempt: int = 0, sandbox: str = "p-0") -> Container:
    """A container of a Guaranteed pod; its key is what the runtime will say, after ``r-``."""
    key = f"r-{sandbox}-{name}-{attempt}"
    return Container(
        key=key, pod=sandbox, name=name, attempt=attempt, pod_name=sandbox[:-2], qos=GUARANTEED, cpu_milli=cpus * 1000
    )


def key_of(each: Container) -> str:
    """The runtime's id."""
    return each.key.removeprefix("r-")


def runs(each: Container) -> tuple[ev.Event, ...]:
    """Until it runs."""
    return ev.ContainerCreating(each), ev.ContainerCreated(each.key, key_of(each)), ev.ContainerStarted(key_of(each))


def exits(each: Container) -> ev.Event:
    """It ends by itself."""
    return ev.ContainerExited(key_of(each))


def live(policy: Policy, *events: ev.Event | Sequence[ev.Event], node: Node | None = None) -> Node:
    """The node after *events*, each of which keeps the invariants."""
    decision = Decision(node or Node(MACHINE))
    for event in (one for some in events for one in (some if isinstance(some, Sequence) else (some,))):
        decision = step(decision.node, event, policy)
        assert violations(decision.node) == [], event
    return decision.node


def owns(node: Node, each: Container) -> str:
    """The exclusive CPUs of a container."""
    return format_cpuset(node.grants[key_of(each)].exclusive)


def kept(node: Node, uid: str = "p") -> str:
    """The CPUs that are kept for a pod."""
    return format_cpuset(node.kept[uid].cpus) if uid in node.kept else ""


WAITING = container("main", 6, sandbox="w-0")


def test_a_crash_loop_finds_its_cpus_beside_a_waiting_pod(policy: Policy) -> None:
    """Who waits is refused as long as the pod is there, and gets the CPUs when it has ended."""
    mains = [container("main", 2, attempt) for attempt in range(3)]
    node = live(policy, pod("p", 2), runs(mains[0]), pod("w", 6))
    had = owns(node, mains[0])
    for before, after in pairwise(mains):
        node = live(policy, exits(before), node=node)
        assert kept(node) == had
        with pytest.raises(NotEnough):
            step(node, ev.ContainerCreating(WAITING), policy)
        node = live(policy, runs(after), ev.ContainerGone(key_of(before)), node=node)
        assert owns(node, after) == had

    node = live(policy, ev.PodStopped("p-0"), runs(WAITING), node=node)
    assert not node.kept
    assert owns(node, WAITING) == "1-6" or len(node.grants[key_of(WAITING)].exclusive) == 6


def test_nobody_shares_kept_cpus(policy: Policy) -> None:
    """Containers that share keep off, those that are there and those that come, of its own pod too."""
    main = container("main", 2)
    side = replace(container("side", 0), cpu_milli=100)
    node = live(policy, pod("p", 3), runs(side), runs(main), exits(main))
    late = replace(container("late", 0, sandbox="w-0"), cpu_milli=100)
    node = live(policy, pod("w", 1), runs(late), node=node)
    cpus = parse_cpuset(kept(node))

    assert len(cpus) == 2
    assert all(grant.cpus.isdisjoint(cpus) for grant in node.grants.values())
    node = live(policy, ev.PodStopped("p-0"), node=node)
    assert any(cpus <= grant.cpus for grant in node.grants.values()) or not cpus & node.exclusive_cpus


@pytest.mark.parametrize(
    ("init", "app", "kept_after"),
    [
        pytest.param(4, 2, 2, id="larger"),
        pytest.param(2, 4, 0, id="smaller"),
        pytest.param(3, 3, 0, id="the-same"),
    ],
)
def test_an_init_container_and_the_app(policy: Policy, init: int, app: int, kept_after: int) -> None:
    """Together they never hold more than the pod's total; what the app does not need of it stays the pod's."""
    first, main = container("init", init), container("main", app)
    node = live(policy, pod("p", max(init, app)), runs(first), exits(first), runs(main))

    assert len(node.grants[key_of(main)].exclusive) == app
    assert len(pod_cpus(node, "p")) == app + kept_after


def test_one_that_crashed_before_its_sibling_came_finds_its_cpus(policy: Policy) -> None:
    """The sibling gets others, as long as the total of the pod has them."""
    first, second, again = container("a", 2), container("b", 2), container("a", 2, 1)
    node = live(policy, pod("p", 4), runs(first))
    had = owns(node, first)
    node = live(policy, exits(first), runs(second), runs(again), node=node)

    assert owns(node, again) == had


def test_nothing_is_kept_beyond_the_total(policy: Policy) -> None:
    """Who comes back smaller, after the pod was resized, leaves the rest to others."""
    main, again = container("main", 4), container("main", 2, 1)
    node = live(policy, pod("p", 4), runs(main), exits(main), ev.PodResized("p-0", 2000))
    assert len(node.kept["p"].cpus) == 2

    node = live(policy, runs(again), node=node)
    assert len(pod_cpus(node, "p")) == 2


def test_kept_cpus_are_free_for_their_own_pod(policy: Policy) -> None:
    """Nobody of the pod is refused because of them."""
    init, main = container("init", 5), container("main", 5)
    node = live(policy, pod("p", 5), runs(init), exits(init))
    node = live(policy, runs(main), node=node)
    grown = live(policy, ev.ContainerResized(key_of(main), replace(main.sizes, cpu_milli=6000)), node=node)

    assert len(grown.grants[key_of(main)].exclusive) == 6


@pytest.mark.parametrize("milli", [500, 1000, 1500], ids="{}m".format)
@pytest.mark.parametrize("way", ["resized", "next-attempt"])
@pytest.mark.parametrize("before", [("init",), ("main",), ("init", "main")], ids="+".join)
@pytest.mark.parametrize("total", [2, 0], ids=["total", "no-total"])
def test_what_a_smaller_container_leaves_is_shared_or_kept(
    policy: Policy, total: int, before: tuple[str, ...], way: str, milli: int
) -> None:
    """Never both, under whatever names it was kept; and the pod has no more than it had."""
    main, other = container("main", 2, 7), replace(container("side", 0, sandbox="w-0"), cpu_milli=100)
    node = live(policy, pod("p", total), pod("w"), runs(other))
    for name in before:
        node = live(policy, runs(container(name, 2)), exits(container(name, 2)), node=node)
    node = live(policy, runs(main), node=node)
    again = replace(container("main", 2, 8), cpu_milli=milli)
    smaller = ev.ContainerResized(key_of(main), replace(main.sizes, cpu_milli=milli))
    node = live(policy, *((smaller,) if way == "resized" else (exits(main), runs(again))), node=node)

    assert len(pod_cpus(node, "p")) <= 2
    assert node.grants[key_of(other)].cpus.isdisjoint(node.exclusive_cpus)
    waiting = container("main", len(node.grants[key_of(other)].cpus - {0}) - 1, sandbox="x-0")
    assert live(policy, pod("x", 9), runs(waiting), node=node).grants[key_of(waiting)].exclusive


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(ev.PodStopped("p-0"), id="stopped"),
        pytest.param(ev.PodGone("p-0"), id="gone"),
        pytest.param(ev.PodNotReady("p-0"), id="not-ready"),
        pytest.param(ev.Released("somebody asked for it"), id="release"),
        pytest.param(ev.PolicyChanged(apply_all=True), id="apply-all"),
        pytest.param(ev.TopologyChanged(machine(nodes=1, cores=7, threads=1)), id="cpus-offline"),
    ],
)
def test_what_ends_it(policy: Policy, end: ev.Event) -> None:
    """And what was kept is there for everybody."""
    main = container("main", 2)
    node = live(policy, pod("p", 2), runs(main), exits(main), end)

    assert not node.kept
    assert not node.exclusive_cpus


def test_who_exits_after_the_stop_keeps_nothing(policy: Policy) -> None:
    """A pod that has ended never comes back with this sandbox."""
    main = container("main", 2)
    node = live(policy, pod("p", 2), runs(main), ev.PodNotReady("p-0"), exits(main))

    assert not node.kept
    assert not node.exclusive_cpus


def test_the_next_sandbox_inherits_what_is_free_of_it(policy: Policy) -> None:
    """Its process was killed: stop and new sandbox come within milliseconds, and somebody may have been quicker."""
    main, again = container("main", 3), container("main", 3, 1, sandbox="p-1")
    node = live(policy, pod("p", 3), runs(main))
    had = node.grants[key_of(main)].exclusive
    node = live(policy, ev.PodStopped("p-0"), node=node)
    new = pod("p", 3, attempt=1).pod

    node = live(policy, ev.PodCreated(new, inherits={"main": had}), node=node)
    assert node.kept == {"p": Kept({"main": had})}
    assert owns(live(policy, runs(again), node=node), again) == format_cpuset(had)


def test_what_somebody_has_taken_meanwhile_is_not_inherited(policy: Policy) -> None:
    """Nobody loses a CPU by it, and one stays with those who share."""
    quick = container("main", 5, sandbox="w-0")
    node = live(policy, pod("w", 5), runs(quick))
    node = live(policy, ev.PodCreated(pod("p", 7).pod, inherits={"main": frozenset(range(1, 8))}), node=node)

    assert len(node.kept["p"].cpus) == 2
    assert node.kept["p"].cpus.isdisjoint(node.grants[key_of(quick)].exclusive)
    assert node.shared_cpus


CPUS = st.integers(1, 3)
"""That a container asks for: few, so that pods meet."""
MILLI = st.sampled_from([500, 1000, 1500, 2000, 3000])
SHARER = replace(container("side", 0, sandbox="s-0"), cpu_milli=100)


@st.composite
def crash_loops(draw: st.DrawFn) -> list[ev.Event]:
    """Pods with and without totals whose containers come, end, come back, are resized; sandboxes end and come back."""
    sandboxes, attempts = {"p": 0, "w": 0}, dict.fromkeys(itertools.product("pw", "abc"), 0)
    total = st.integers(0, 6)
    happened: list[ev.Event] = [pod(uid, draw(total)) for uid in sandboxes]
    happened += (pod("s"), *runs(SHARER)) if draw(st.booleans()) else ()
    for uid, name in draw(st.lists(st.sampled_from(sorted(attempts)), min_size=5, max_size=30)):
        each = container(name, draw(CPUS), attempts[uid, name], f"{uid}-{sandboxes[uid]}")
        match draw(
            st.sampled_from(["comes", "comes", "comes", "fails", "ends", "resized", "total", "sandbox", "list"])
        ):
            case "comes":
                happened += [exits(each), ev.ContainerGone(key_of(each))]
                attempts[uid, name] += 1
                happened += runs(replace(container(name, 0, attempts[uid, name], each.pod), cpu_milli=draw(MILLI)))
            case "fails":
                failing = container(name, draw(CPUS), attempts[uid, name] + 100 + len(happened), each.pod)
                happened += [exits(each), ev.ContainerCreating(failing), ev.ContainerGone(failing.key)]
            case "ends":
                happened.append(exits(each))
            case "resized":
                happened.append(ev.ContainerResized(key_of(each), replace(each.sizes, cpu_milli=draw(MILLI))))
            case "total":
                happened.append(ev.PodResized(each.pod, draw(total) * 1000))
            case "list":
                happened.append(ev.PodNotReady(each.pod))
            case _:
                sandboxes[uid] += 1
                few = st.frozensets(st.integers(1, 7), min_size=1, max_size=3)
                had = draw(st.dictionaries(st.sampled_from("abc"), few, min_size=1))
                new = pod(uid, draw(total), sandboxes[uid])
                happened += [ev.PodStopped(each.pod), replace(new, inherits=had)]
    return happened


@pytest.mark.parametrize("name", ["static", "topology-aware"])
@given(life=crash_loops())
def test_crash_loops_keep_the_invariants(name: str, life: list[ev.Event]) -> None:
    """Whatever comes back, and a refusal leaves all as it was; when all pods have ended, every CPU is free."""
    policy, node = build(name), Node(MACHINE)
    for event in [*life, *(ev.PodGone(f"{uid}-{number}") for uid in "pws" for number in range(40))]:
        try:
            node = step(node, event, policy).node
        except NotEnough:
            continue
        assert violations(node, frozenset({0})) == [], event

    assert not node.kept
    assert node.shared_cpus == MACHINE.cpus


def _in_a_resize(node: Node) -> bool:
    """Whether the total of the first sandbox of the pod p does not go with what its containers ask for."""
    alive = [each for each in node.containers_of("p-0") if each.key in node.grants]
    total, sizes = node.pods["p-0"].cap_milli if "p-0" in node.pods else None, [each.cpu_milli for each in alive]
    own = [node.grants[each.key].exclusive for each in alive]
    is_shared = len(frozenset[int]().union(*own)) < sum(map(len, own))
    return ((total is not None and sum(sizes) > total) or is_shared) and total not in sizes


@pytest.mark.parametrize("name", ["static", "topology-aware"])
@given(life=crash_loops(), cpus=CPUS)
def test_one_that_comes_and_goes_leaves_capacities_as_before(name: str, life: list[ev.Event], cpus: int) -> None:
    """Its pod may have given up what it kept beyond its total; nobody else has another place, or fewer CPUs."""
    policy, node = build(name), Node(MACHINE)
    for event in life:
        with suppress(NotEnough):
            node = step(node, event, policy).node
    if _in_a_resize(node):
        return  # whose CPUs are whose is told by the rest of it
    newcomer = container("new", cpus)
    try:
        during = step(node, ev.ContainerCreating(newcomer), policy).node
    except NotEnough:
        return
    after = step(during, ev.ContainerGone(newcomer.key), policy).node

    assert len(after.owned_cpus) == len(node.owned_cpus)
    assert len(after.kept_cpus - after.owned_cpus) <= len(node.kept_cpus - node.owned_cpus)
    assert {uid: kept for uid, kept in after.kept.items() if uid != "p"} == {
        uid: kept for uid, kept in node.kept.items() if uid != "p"
    }


def test_a_create_that_comes_to_nothing_gives_its_sibling_back_what_it_took(policy: Policy) -> None:
    """A sibling without a size of its own, which counted less while the other was to be made."""
    first = [pod("p"), *runs(container("main", 2)), ev.PodResized("p-0", cpu_total_milli=2000)]
    node, newcomer = live(policy, *first), container("new", 1)

    after = live(policy, ev.ContainerCreating(newcomer), ev.ContainerGone(newcomer.key), node=node)

    assert after.grants == node.grants


def test_a_create_that_comes_to_nothing_leaves_its_siblings_where_they_were(policy: Policy) -> None:
    """Who had to share its CPUs with it has those again that were kept for it, and no other is kept beside them."""
    crashed = [*runs(container("main", 1)), exits(container("main", 1)), *runs(container("main", 1, 1))]
    side = replace(container("side", 0), cpu_milli=500)
    first = [pod("w"), *runs(container("first", 1, sandbox="w-0")), pod("p", 3), *runs(side)]
    node = live(policy, *first, *crashed, ev.PodStopped("w-0"))
    newcomer = container("new", 3)

    after = live(policy, ev.ContainerCreating(newcomer), ev.ContainerGone(newcomer.key), node=node)

    assert after.grants == node.grants
    assert after.kept == node.kept


def test_cpus_that_went_offline_over_a_restart_are_not_kept(policy: Policy) -> None:
    """The node was read on the machine as it is now; who shares gets what is left of them."""
    main, other = container("main", 2), replace(container("side", 0, sandbox="w-0"), cpu_milli=100)
    node = live(policy, pod("p", 2), pod("w"), runs(other), runs(main), exits(main))
    smaller = machine(nodes=1, cores=8, threads=1, allowed=MACHINE.cpus - {max(node.kept_cpus)})

    after = live(policy, ev.TopologyChanged(smaller), node=node.replace(topology=smaller))

    assert not after.kept
    assert not after.exclusive_cpus


@pytest.mark.parametrize("total", [2, 0], ids=["total", "no-total"])
def test_what_comes_back_during_a_bypass_finds_its_cpus_after_it(policy: Policy, total: int) -> None:
    """The policy is not asked, so the container shares; its CPUs wait, and it gets these, though others are free."""
    mains = [container("main", 2, attempt) for attempt in range(2)]
    mains[1] = replace(mains[1], missed=Missed(why=Miss.BYPASSED))
    first = container("main", 1, sandbox="f-0")
    node = live(policy, pod("f", 1), runs(first), pod("p", total), runs(mains[0]), ev.PodStopped("f-0"))
    had = owns(node, mains[0])

    node = live(Fallback(options_of(policy)), exits(mains[0]), runs(mains[1]), node=node)
    assert (owns(node, mains[1]), kept(node)) == ("", had)
    assert node.grants[key_of(mains[1])].cpus.isdisjoint(node.kept_cpus)

    after = live(policy, ev.Promoted(key_of(mains[1])), node=node)
    assert owns(after, mains[1]) == had
    assert after.kept_cpus <= after.owned_cpus


@pytest.mark.parametrize(
    ("asks", "leave"),
    [
        pytest.param(6, ["p/(kept CPUs 1-2)"], id="kept"),
        pytest.param(7, ["o/main", "p/(kept CPUs 1-2)"], id="kept-and-running"),
        pytest.param(8, [], id="too-large"),
    ],
)
def test_who_would_have_to_leave_for_one_that_waits_for_kept_cpus(policy: Policy, asks: int, leave: list[str]) -> None:
    """A pod whose container has ended is in the way like one whose container runs."""
    main, other, waiting = container("main", 2), container("main", 1, sandbox="o-0"), container("main", asks, 0, "w-0")
    node = live(policy, pod("p", 2), pod("o", 1), pod("w", asks), runs(main), runs(other), exits(main))

    event = ev.ContainerCreating(waiting)
    found = weighed(placing(node, event, policy), event, policy, refused=True)

    assert found is not None
    assert found[1].leavers is not None
    assert sorted(found[1].leavers.containers) == leave
    assert found[1].leavers.shortest


def with_kept(node: Node, **cpus: str) -> Node:
    """The node in which these are kept, by uid of the pod."""
    return node.replace(kept={uid: Kept({"main": parse_cpuset(text)}) for uid, text in cpus.items()})


def test_whatever_is_wrong_with_what_is_kept_is_noticed(policy: Policy) -> None:
    """Each mistake has a sentence, and what is in order has none."""
    node = live(policy, pod("p", 2), pod("q", 4), pod("s"), *runs(SHARER), *runs(container("main", 2)))
    key = key_of(SHARER)
    aside = node.replace(grants={**node.grants, key: replace(node.grants[key], cpus=frozenset({7}))})

    assert violations(with_kept(node, q="4-5")) == ["s/side may run on CPUs 4-5, kept for a pod"]
    for kept, found in (
        ({"q": "4-5"}, []),
        ({"gone": "4"}, ["the pod gone, which has ended, keeps CPU 4"]),
        ({"q": "9"}, ["the pod q keeps CPU 9, which pods may not use"]),
        ({"q": "1"}, ["the pod q keeps CPU 1, which another pod or container has"]),
        ({"p": "4"}, ["the pod p has exclusive CPUs 1-2,4, and asks for 2000m in total"]),
    ):
        assert violations(with_kept(aside, **kept)) == found
