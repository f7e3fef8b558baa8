"""Letting everybody go, and placing them again."""

from dataclasses import replace

import pytest
from hypothesis import given

from criproxy.errors import NotEnough
from criproxy.model.grant import Applied, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.text.notices import Trouble
from criproxy.model.workload import Container, ContainerState, Miss, Missed, QosClass
from criproxy.placement import events as ev
from criproxy.placement.engine import step
from criproxy.placement.invariants import violations
from criproxy.placement.options.policy_options import Options, options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback, NonePolicy
from criproxy.placement.rules.release import outcome_of
from criproxy.simulate.hosts import machine
from tests.laws import memory_stays
from tests.placement.built import policy_of
from tests.placement.lives import live, lives_with_found, machines
from tests.placement.test_changes import MACHINE, asking, cpus

STATIC = policy_of("static", {"reservedCpus": "0"})
WHOLE = Grant(MACHINE.cpus, MACHINE.mems)
ASKED = ev.Released("somebody asked for it")


def after(node: Node, *events: ev.Event, policy: Policy = STATIC) -> Node:
    """The node after *events*."""
    for event in events:
        node = step(node, event, policy).node
    return node


def started(name: str, cpus: float) -> tuple[ev.Event, ...]:
    """A container runs under its name."""
    return ev.ContainerCreating(asking(name, cpus)), ev.ContainerCreated(f"r-{name}", name), ev.ContainerStarted(name)


RUNNING = after(Node(MACHINE), *started("a", 2), *started("b", 0.5))


def applied(key: str, grant: Grant = WHOLE) -> ev.Event:
    """The container was seen to have what *grant* says."""
    return ev.UpdateApplied(key, Applied(grant.cpus, grant.mems))


def released(node: Node = RUNNING) -> Node:
    """The node after a release that went through."""
    return after(node, ASKED, *(applied(key) for key in node.grants))


def test_who_has_been_let_go_has_no_place_any_more() -> None:
    """So nobody repairs it; who has not yet is what is left."""
    node = after(RUNNING, ASKED, applied("b", Grant(MACHINE.cpus, frozenset({0}))), applied("a"))

    assert node.grants == {"b": WHOLE}
    assert after(node, applied("b")).grants == {}


def test_a_create_in_flight_is_let_go_when_it_has_an_id() -> None:
    """Its message carried a place: it is updated like the others."""
    node = after(Node(MACHINE), ev.ContainerCreating(asking("a", 2)), ASKED)
    assert step(Node(MACHINE), ev.ContainerCreating(asking("a", 2)), STATIC).node.grants["r-a"].exclusive

    node = after(node, ev.ContainerCreated("r-a", "a"))

    assert node.grants == {"a": WHOLE}
    assert "a" not in node.applied
    assert after(node, applied("a")).grants == {}


def test_who_has_been_let_go_gets_the_cpus_that_come() -> None:
    """It may run on all CPUs, of which there are more now; one that another program restricts is left alone."""
    small = after(Node(machine(1, 4, 1)), *started("a", 2), *started("b", 0.5))
    free = after(small, ASKED, *(ev.UpdateApplied(key, Applied(frozenset(range(4)), frozenset({0}))) for key in "ab"))
    restricted = after(free, ev.UpdateApplied("b", Applied(frozenset({3}), frozenset({0}))))

    decision = step(restricted, ev.TopologyChanged(MACHINE), STATIC)

    assert decision.node.grants == {"a": WHOLE}
    assert [update.key for update in decision.updates] == ["a"]


MOVED = after(RUNNING, *started("c", 2), *started("d", 1), ev.ContainerGone("a"))
"""A node on which the first free CPUs are not those of the containers that came first."""


@pytest.mark.parametrize("apply_all", [pytest.param(True, id="undone"), pytest.param(False, id="another file")])
@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(STATIC, id="static"),
        pytest.param(policy_of("topology-aware"), id="topology-aware"),
    ],
)
def test_who_was_released_goes_back_to_where_it_was(policy: Policy, *, apply_all: bool) -> None:
    """Its CPUs are free, so it gets the same, and its memory stays where the kernel has it."""
    first = after(Node(MACHINE), *started("a", 2), *started("b", 0.5), *started("c", 2), policy=policy)
    before = after(first, *started("d", 1), ev.ContainerGone("a"), policy=policy)

    node = after(released(before), ev.PolicyChanged(apply_all=apply_all), policy=policy)

    assert node.grants == before.grants
    assert node.former == {}


def test_who_came_during_a_release_takes_no_cpu_from_those_before() -> None:
    """It is placed when the release ends, beside those who go back."""
    node = after(released(MOVED), *started("e", 2), *[applied("e")], ev.PolicyChanged())

    assert {key: cpus(node)[key] for key in ("c", "d")} == {key: cpus(MOVED)[key] for key in ("c", "d")}
    assert cpus(node)["e"] == "[1-2]"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(
            {0, 1}, [" may run only on CPUs 0-1: another program has restricted it since the release"], id="less"
        ),
        pytest.param(MACHINE.cpus, [], id="all"),
        pytest.param({*MACHINE.cpus, 8}, [], id="more than pods may use"),
    ],
)
def test_the_check_says_which_released_container_is_restricted_again(seen: set[int], expected: list[str]) -> None:
    """What it has is followed, though it has no place."""
    node = after(released(), ev.UpdateApplied("a", Applied(frozenset(seen), MACHINE.mems)))

    assert violations(node) == [f"{node.containers['a'].title}{text}" for text in expected]


def test_under_the_policy_none_nobody_asks_what_others_make_of_a_container() -> None:
    """Its cpuset is another program's affair."""
    node = after(RUNNING, ev.PolicyChanged(apply_all=True), policy=NonePolicy(Options()))
    node = after(node, applied("a"), applied("b"), ev.UpdateApplied("a", Applied(frozenset({3}), MACHINE.mems)))

    assert (node.applied, violations(node)) == ({}, [])


def test_a_release_that_ended_without_a_daemon_is_remembered_until_containers_are_placed() -> None:
    """The command leaves the placing to the daemon that starts next."""
    unplaced = after(released(MOVED), ev.PolicyChanged(), policy=NonePolicy(Options()))
    assert (unplaced.grants, unplaced.released) == ({}, "")

    assert cpus(after(unplaced, ev.PolicyChanged(apply_all=True))) == cpus(MOVED)
    assert cpus(after(released(unplaced), ev.PolicyChanged())) == cpus(MOVED)


def test_a_container_that_was_found_goes_back_as_well() -> None:
    """It has no create of ours, and is not taken for one that is only watched."""
    found = Container(key="f", pod="s", name="f", qos=QosClass.BURSTABLE, state=ContainerState.RUNNING)
    before = after(MOVED, ev.Found(containers=(ev.Present(found, Applied(MACHINE.cpus, MACHINE.mems)),)))

    node = released(before)

    assert not node.is_watched("f")
    assert cpus(after(node, ev.PolicyChanged())) == cpus(before)
    assert "f" in after(node, ev.PolicyChanged(apply_all=True), policy=Fallback(options_of(STATIC))).grants
    assert "f" in after(node, ev.TopologyChanged(machine(1, 4, 1)), ev.PolicyChanged()).grants


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([applied("a")], ("released", "0-7", ""), id="released"),
        pytest.param([ev.ContainerExited("a")], ("ended", "", ""), id="ended"),
        pytest.param([], ("left", "1-2", "the runtime is away"), id="left"),
        pytest.param([applied("a"), ev.ContainerGone("a")], ("ended", "", ""), id="gone"),
    ],
)
def test_what_became_of_a_container_by_a_release(events: list[ev.Event], expected: tuple[str, str, str]) -> None:
    """Where it was and is, and why it is not where it should be."""
    before = after(RUNNING, applied("a", RUNNING.grants["a"]))
    node = after(before, ASKED, *events)

    row = outcome_of(before.containers["a"], before, node, "released", {"a": Trouble("the runtime is away", 2)})

    assert (row["id"], row["cpus_before"]) == ("a", "1-2")
    assert (row["outcome"], row["cpus"], row["error"]) == expected


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        pytest.param(None, ("placed", ""), id="placed"),
        pytest.param(Miss.UNFIT, ("shares", "the policy has no place for it"), id="no room"),
        pytest.param(
            Miss.BYPASSED,
            ("shares", "the policy was not asked where to place it, and is asked as soon as it can be"),
            id="not asked",
        ),
    ],
)
def test_who_was_not_placed_is_not_said_to_be_placed(why: Miss | None, expected: tuple[str, str]) -> None:
    """It shares, and the row says why."""
    known = replace(RUNNING.containers["a"], missed=Missed(why=why) if why else None)
    node = after(RUNNING.replace(containers={**RUNNING.containers, "a": known}), applied("a", RUNNING.grants["a"]))

    row = outcome_of(known, released(), node, "placed", {})

    assert (row["outcome"], row["error"]) == expected


@given(machines(), lives_with_found)
def test_a_release_and_its_end_keep_every_promise(topology: Topology, life: list[ev.Event]) -> None:
    """At any moment of any life: free after the release, and placed after its end, with the memory of before."""
    policy = policy_of("topology-aware")
    node = Node(topology)
    for _, event, state in live(topology, policy, life):
        node = state
        if isinstance(event, ev.PolicyChanged):
            assert not node.released
    free = after(node, ASKED, policy=policy)
    assert violations(free) == []
    for apply_all in (False, True):
        back = after(free, ev.PolicyChanged(apply_all), policy=policy)
        alive = {key for key in node.containers if key in free.grants}
        assert violations(back) == []
        staying = {key for key, each in node.containers.items() if each.stays}  # they may have their places again
        assert alive <= back.grants.keys() <= alive | staying
        assert node.released or list(memory_stays(node, back)) == []


def leaving_alone(name: str, cpus: float) -> tuple[ev.Event, ...]:
    """A container runs that must not be updated."""
    creating, *others = started(name, cpus)
    assert isinstance(creating, ev.ContainerCreating)
    return ev.ContainerCreating(replace(creating.container, stays=True)), *others


def test_who_must_not_be_updated_owns_its_cpus_again_after_a_release() -> None:
    """It never left them; those that came meanwhile and those that share are elsewhere."""
    before = after(Node(MACHINE), *leaving_alone("card", 2), *started("b", 0.5))
    let_go = after(before, ASKED, applied("b"), *started("late", 0.5), applied("late"))
    assert set(let_go.former) == {"card", "b"}
    assert let_go.watched_cpus == before.grants["card"].cpus

    back = after(let_go, ev.PolicyChanged(apply_all=True))

    assert back.grants["card"] == before.grants["card"]
    assert back.shared_cpus == back.grants["b"].cpus == before.shared_cpus
    assert (back.watched_cpus, back.former, violations(back)) == (frozenset(), {}, [])


def test_who_must_not_be_updated_is_only_watched_where_somebody_has_moved_it() -> None:
    """It could not be brought back, so nobody is told that these CPUs are its own."""
    before = after(Node(MACHINE), *leaving_alone("card", 2))
    elsewhere = Applied(frozenset({1, 5}), frozenset({0, 1}))

    back = after(before, ASKED, ev.UpdateApplied("card", elsewhere), ev.PolicyChanged(apply_all=True))

    assert "card" not in back.grants
    assert back.watched_cpus == {1, 5}


def test_a_release_says_who_stays() -> None:
    """With the CPUs that it has and the reason: it counts neither as released nor as left."""
    before = after(Node(MACHINE), *leaving_alone("card", 2))
    node = after(before, ASKED)

    row = outcome_of(before.containers["card"], before, node, "released", {})

    assert (row["outcome"], row["cpus_before"], row["cpus"]) == ("stays", "1-2", "1-2")
    assert "could take its card away" in row["error"]


def test_who_came_during_a_release_and_must_not_be_updated_is_watched_afterwards() -> None:
    """It was put into the runtime without a place: it may run on every CPU, so none becomes exclusive for newcomers."""
    before = after(Node(MACHINE), *started("b", 2))
    let_go = after(before, ASKED, applied("b"), *leaving_alone("card", 0.5))

    for apply_all in (False, True):
        back = after(let_go, ev.PolicyChanged(apply_all))
        assert "card" not in back.grants
        assert back.watched_cpus == MACHINE.cpus
        with pytest.raises(NotEnough, match="containers that criproxy does not move run on CPUs 0-7"):
            step(back, ev.ContainerCreating(asking("late", 1)), STATIC)


def test_who_came_under_the_policy_none_and_must_not_be_updated_is_watched_by_the_next_policy() -> None:
    """As after a release; once it has ended, its CPUs are free."""
    before = after(Node(MACHINE), *leaving_alone("card", 0.5), policy=NonePolicy(Options()))

    for apply_all in (False, True):
        node = after(before, ev.PolicyChanged(apply_all))
        assert ("card" in node.grants, node.watched_cpus) == (False, MACHINE.cpus)
        assert after(node, ev.ContainerExited("card"), *started("late", 1)).grants["late"].exclusive


def test_who_turns_out_to_be_one_that_must_not_be_updated_is_watched_without_a_place() -> None:
    """A later look at its cards shows that it could lose one, after it had been created during a release."""
    let_go = after(Node(MACHINE), ASKED, *started("card", 0.5))
    found = replace(let_go.containers["card"], stays=True)

    node = after(let_go, ev.Found(containers=(ev.Present(found),)), ev.PolicyChanged(apply_all=True))

    assert ("card" in node.grants, node.watched_cpus) == (False, MACHINE.cpus)
