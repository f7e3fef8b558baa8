"""When a tried configuration goes back, containers are where they were, and nobody is on CPUs of another."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.engine.events import (
    ContainerCreated,
    ContainerCreating,
    ContainerGone,
    ContainerResized,
    ContainerStarted,
    Event,
    PolicyChanged,
    Released,
    TopologyChanged,
)
from criproxy.engine.invariants import violations
from criproxy.engine.step import step
from criproxy.errors import Refused
from criproxy.model.node import Node
from criproxy.model.place import places_of
from criproxy.model.topology import Topology
from criproxy.model.workload import QosClass
from criproxy.policy.api import Policy
from criproxy.policy.balloons import BalloonsOptions, BalloonsPolicy
from criproxy.policy.none import NonePolicy
from criproxy.policy.options import Options
from criproxy.policy.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.machines import machine
from tests.engine.lives import live, lives, lives_with_found, machines, reservations
from tests.engine.test_changes import MACHINE, asking, cpus, running, sizes, static

AWARE = TopologyAwarePolicy(TopologyAwareOptions.model_validate({"reservedCpus": "0"}))
BALLOONS = BalloonsPolicy(
    BalloonsOptions.model_validate(
        {"reservedCpus": "0", "balloonTypes": [{"name": "a", "namespaces": ["kube-system"], "minCPUs": 1}]}
    )
)
POLICIES: dict[str, Policy] = {"static": static(), "other": static("0-1"), "aware": AWARE, "balloons": BALLOONS}


def came(node: Node, policy: Policy, key: str, count: float) -> Node:
    """The node after a container has come."""
    new = asking(key, count)
    for event in (ContainerCreating(new), ContainerCreated(new.key, key), ContainerStarted(key)):
        node = step(node, event, policy).node
    return node


def tried(node: Node, policy: Policy, *, apply_all: bool = True) -> Node:
    """The node during a try."""
    return step(node, PolicyChanged(apply_all, "tried"), policy).node


def back(node: Node, before: Node, policy: Policy) -> Node:
    """The node after the end of the try that began with *before*."""
    return step(node, PolicyChanged(configuration="before", back=places_of(before)), policy).node


NONE = NonePolicy(Options())
BEFORE = running(asking("a", 2), asking("b", 1), asking("c", 0.5))


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(static("0-3"), id="other-reserved-cpus"),
        pytest.param(AWARE, id="another-policy"),
        pytest.param(BALLOONS, id="balloons"),
        pytest.param(NONE, id="none"),
    ],
)
@pytest.mark.parametrize("apply_all", [True, False])
def test_everybody_is_where_they_were(policy: Policy, apply_all: bool) -> None:
    """Owners and sharers, whatever the tried policy did with them."""
    during = tried(BEFORE, policy, apply_all=apply_all)

    after = back(during, BEFORE, static())

    assert after.grants == BEFORE.grants
    assert (after.configuration, after.released, violations(after)) == ("before", "", [])


def test_who_came_meanwhile_makes_room() -> None:
    """It keeps CPUs that nobody had, and leaves those that had an owner."""
    during = came(came(tried(BEFORE, static("0-3")), static("1-3"), "d", 1), static("4-7"), "e", 2)
    assert cpus(during) == {"a": "[4-5]", "b": "[6]", "c": "3,7", "d": "[0]", "e": "[1-2]"}

    after = back(during, BEFORE, static())

    assert cpus(after) == {"a": "[1-2]", "b": "[3]", "c": "6-7", "d": "[0]", "e": "[4-5]"}


def test_who_has_no_place_any_more_shares() -> None:
    """The tried configuration had room for a container, the former one has not: it shares, and is placed later."""
    before = running(asking("a", 2), policy=static("0-4"))
    assert cpus(before) == {"a": "[5-6]"}
    during = came(tried(before, static("5-7")), static("0"), "d", 4)
    assert cpus(during) == {"a": "[0-1]", "d": "[4-7]"}

    decision = step(during, PolicyChanged(configuration="x", back=places_of(before)), static("0-4"))

    assert cpus(decision.node) == {"a": "[5-6]", "d": "0-4,7"}
    assert any(str(reason.text).startswith("d shares CPUs now: container d asks for 4") for reason in decision.reasons)
    assert decision.node.containers["d"].missed is not None


def test_who_has_ended_leaves_its_cpus_to_the_others() -> None:
    """Sharers get the CPUs of an owner that ended meanwhile."""
    during = step(tried(BEFORE, static("0-3")), ContainerGone("a"), static("0-3")).node

    assert cpus(back(during, BEFORE, static())) == {"b": cpus(BEFORE)["b"], "c": "0-2,4-7"}


def test_a_resized_container_has_its_new_size() -> None:
    """On its former CPUs as far as that goes."""
    during = step(tried(BEFORE, static("0-3")), ContainerResized("a", sizes(1)), static("0-3")).node

    after = back(during, BEFORE, static())

    assert len(after.grants["a"].exclusive) == 1
    assert after.grants["a"].exclusive < BEFORE.grants["a"].exclusive
    assert violations(after) == []


def test_nobody_moved_means_no_update() -> None:
    """With apply: new, the end of a try moves nobody."""
    during = tried(BEFORE, static("0-1"), apply_all=False)

    decision = step(during, PolicyChanged(configuration="before", back=places_of(BEFORE)), static())

    assert decision.updates == ()


def test_lost_cpus_do_not_come_back() -> None:
    """A place of which a CPU has gone offline meanwhile is not returned to."""
    smaller = machine(nodes=2, cores=4, threads=1, allowed=MACHINE.cpus - BEFORE.grants["a"].exclusive)
    during = step(tried(BEFORE, static("0-3")), TopologyChanged(smaller), static("0-3")).node

    after = back(during, BEFORE, static())

    assert violations(after) == []
    assert after.grants["b"].exclusive == BEFORE.grants["b"].exclusive


def test_a_release_in_the_middle_outlives_the_try() -> None:
    """The node stays released; who is placed again afterwards returns to the place from before the try."""
    during = step(tried(BEFORE, static("0-3")), Released("somebody"), static("0-3")).node
    event = PolicyChanged(configuration="before", keeps_release=True, back=places_of(BEFORE))

    released = step(during, event, static()).node
    undone = step(released, PolicyChanged(apply_all=True, configuration="before"), static()).node

    assert (released.released, released.configuration) == ("somebody", "before")
    assert cpus(undone) == cpus(BEFORE)


def test_a_release_while_none_is_tried_outlives_it() -> None:
    """The tried configuration has released everybody already: its places are those from before the try, too."""
    during = step(tried(BEFORE, NONE), Released("somebody"), NONE).node
    event = PolicyChanged(configuration="before", keeps_release=True, back=places_of(BEFORE))

    released = step(during, event, static()).node
    undone = step(released, PolicyChanged(apply_all=True, configuration="before"), static()).node

    assert dict(released.former) == dict(BEFORE.grants)
    assert cpus(undone) == cpus(BEFORE)


def test_who_came_meanwhile_leaves_cpus_that_others_share_again() -> None:
    """A balloon returns with all of its CPUs, also with one that somebody got exclusively during the try."""
    before = running(asking("a", 2), asking("c", 0.5), policy=BALLOONS)
    during = came(tried(before, static()), static(), "d", 1)
    assert during.grants["d"].exclusive <= before.grants["a"].cpus

    after = back(during, before, BALLOONS)

    assert violations(after) == []
    assert all(after.grants[key].cpus >= before.grants[key].cpus for key in ("a", "c")), "it may grow for who joins it"
    assert not after.grants["d"].exclusive


def test_who_came_meanwhile_leaves_the_last_cpus_to_share() -> None:
    """Where an owner returns, and those who came own all other CPUs, the former policy places these anew."""
    before = running(asking("a", 5), asking("c", 0.5))
    during = came(tried(before, static("1-5")), static("1-5"), "d", 3)
    assert cpus(during) == {"a": "1-5", "c": "1-5", "d": "[0,6-7]"}

    after = back(during, before, static())

    assert violations(after) == []
    assert {key: cpus(after)[key] for key in ("a", "c")} == cpus(before)
    assert not after.grants["d"].exclusive


def test_back_to_none_releases_all() -> None:
    """Before the try nobody had a place."""
    before = step(Node(MACHINE), ContainerCreating(replace(asking("a", 2), qos=QosClass.GUARANTEED)), NONE).node
    during = tried(before, static())
    assert during.grants

    after = step(during, PolicyChanged(back=places_of(before)), NONE).node

    assert (after.released, {grant.exclusive for grant in after.grants.values()}) == (
        "the policy is none",
        {frozenset()},
    )


@given(machines(), st.sampled_from(sorted(POLICIES)), st.sampled_from(sorted(POLICIES)), lives_with_found, lives)
def test_whatever_happens(topology: Topology, first: str, second: str, life: list[Event], later: list[Event]) -> None:
    """After random lives under two policies nobody is on CPUs of another, and whoever was not resized has its place."""
    before = Node(topology)
    for _, _, node in live(topology, POLICIES[first], life):
        before = node
    during, used = tried(before, POLICIES[second]), {each.life for each in before.containers.values()}
    for event in later:
        if isinstance(event, ContainerCreating) and event.container.key in used:
            continue
        used |= reservations(event)
        with suppress(Refused):
            during = step(during, event, POLICIES[second]).node
    if before.released:
        return

    after = back(during, before, POLICIES[first])

    known = {*violations(before), *violations(during)}
    assert [each for each in violations(after) if each not in known] == []
    places = places_of(before)
    for key, container in after.containers.items():
        place = places.get(container.life)
        if place and key in after.grants and not container.stays and container.cpu_milli == place.cpu_milli:
            assert after.grants[key].exclusive == place.grant.exclusive
