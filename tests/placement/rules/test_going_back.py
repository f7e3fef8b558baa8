"""When a tried configuration goes back, containers are where they were, and nobody is on CPUs of another."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import Refused
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node, places_of
from criproxy.model.workload import Desired, Miss, Missed, QosClass
from criproxy.placement import events as ev
from criproxy.placement.answers.shortfalls import shortfalls
from criproxy.placement.engine import step
from criproxy.placement.invariants import violations
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback, NonePolicy
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of
from tests.placement.lives import live, lives, lives_with_found, machines, reservations
from tests.placement.test_changes import MACHINE, asking, cpus, running, sizes, static

AWARE = policy_of("topology-aware", {"reservedCpus": "0"})
BALLOONS = policy_of(
    "balloons", ({"reservedCpus": "0", "balloonTypes": [{"name": "a", "namespaces": ["kube-system"], "minCPUs": 1}]})
)
POLICIES: dict[str, Policy] = {"static": static(), "other": static("0-1"), "aware": AWARE, "balloons": BALLOONS}


def came(node: Node, policy: Policy, key: str, count: float) -> Node:
    """The node after a container has come."""
    new = asking(key, count)
    for event in (ev.ContainerCreating(new), ev.ContainerCreated(new.key, key), ev.ContainerStarted(key)):
        node = step(node, event, policy).node
    return node


def tried(node: Node, policy: Policy, *, apply_all: bool = True) -> Node:
    """The node during a try."""
    return step(node, ev.PolicyChanged(apply_all, "tried"), policy).node


def back(node: Node, before: Node, policy: Policy) -> Node:
    """The node after the end of the try that began with *before*."""
    return step(node, ev.PolicyChanged(configuration="before", back=places_of(before)), policy).node


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


def test_who_is_moved_is_told_why() -> None:
    """Who returns, and who makes room; nobody else, since the others are where they are because of what they know."""
    during = came(came(tried(BEFORE, static("0-3")), static("1-3"), "d", 1), static("4-7"), "e", 2)

    decision = step(during, ev.PolicyChanged(configuration="before", back=places_of(BEFORE)), static())

    assert {each.key: str(each.text) for each in decision.reasons if each.key} == {
        "a": "a is back where it was before the try: exclusive CPUs 1-2",
        "b": "b is back where it was before the try: exclusive CPU 3",
        "e": "e is moved, because the try is over: exclusive CPUs 4-5",
    }


def test_who_has_no_place_any_more_shares() -> None:
    """The tried configuration had room for a container, the former one has not: it shares, and is placed later."""
    before = running(asking("a", 2), policy=static("0-4"))
    assert cpus(before) == {"a": "[5-6]"}
    during = came(tried(before, static("5-7")), static("0"), "d", 4)
    assert cpus(during) == {"a": "[0-1]", "d": "[4-7]"}

    decision = step(during, ev.PolicyChanged(configuration="x", back=places_of(before)), static("0-4"))

    assert cpus(decision.node) == {"a": "[5-6]", "d": "0-4,7"}
    assert any(str(reason.text).startswith("d shares CPUs now: container d asks for 4") for reason in decision.reasons)
    assert decision.node.containers["d"].missed is not None


def test_nobody_moved_means_no_update() -> None:
    """With apply: new, the end of a try moves nobody."""
    during = tried(BEFORE, static("0-1"), apply_all=False)

    decision = step(during, ev.PolicyChanged(configuration="before", back=places_of(BEFORE)), static())

    assert decision.updates == ()


def test_a_release_in_the_middle_outlives_the_try() -> None:
    """The node stays released; who is placed again afterwards returns to the place from before the try."""
    during = step(tried(BEFORE, static("0-3")), ev.Released("somebody"), static("0-3")).node
    event = ev.PolicyChanged(configuration="before", keeps_release=True, back=places_of(BEFORE))

    released = step(during, event, static()).node
    undone = step(released, ev.PolicyChanged(apply_all=True, configuration="before"), static()).node

    assert (released.released, released.configuration) == ("somebody", "before")
    assert cpus(undone) == cpus(BEFORE)


def test_a_release_while_none_is_tried_outlives_it() -> None:
    """The tried configuration has released everybody already: its places are those from before the try, too."""
    during = step(tried(BEFORE, NONE), ev.Released("somebody"), NONE).node
    event = ev.PolicyChanged(configuration="before", keeps_release=True, back=places_of(BEFORE))

    released = step(during, event, static()).node
    undone = step(released, ev.PolicyChanged(apply_all=True, configuration="before"), static()).node

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
    before = step(Node(MACHINE), ev.ContainerCreating(replace(asking("a", 2), qos=QosClass.GUARANTEED)), NONE).node
    during = tried(before, static())
    assert during.grants

    after = step(during, ev.PolicyChanged(back=places_of(before)), NONE).node

    assert (after.released, {grant.exclusive for grant in after.grants.values()}) == (
        "the policy is none",
        {frozenset()},
    )


EX = policy_of("static", {"reservedCpus": "0", "exclusiveFor": []})
ALL_SHARE = [
    pytest.param(EX, True, id="nobody-owns"),
    pytest.param(NONE, False, id="none"),
    pytest.param(NONE, True, id="none-releases"),
]


def waiting(node: Node, key: str) -> Desired | None:
    """What a container waits for."""
    return node.containers[key].desired


@pytest.mark.parametrize(("policy", "apply_all"), ALL_SHARE)
def test_what_was_missed_before_is_missed_again(policy: Policy, apply_all: bool) -> None:
    """Somebody shared for lack of room, and the tried policy was content with that: it waits for its CPUs again."""
    before = tried(running(asking("a", 4), asking("b", 4), policy=EX), static())
    assert before.containers["b"].missed == Missed(why=Miss.UNFIT)
    during = step(tried(before, policy, apply_all=apply_all), ev.Promoted("b"), policy).node

    after = back(during, before, static())

    assert after.containers == before.containers
    alone = step(after, ev.ContainerGone("a"), static()).node
    assert len(step(alone, ev.Promoted("b"), static()).node.grants["b"].exclusive) == 4


def test_a_place_of_an_earlier_version_says_nothing_of_what_was_missed() -> None:
    """Then what is missed stays as it is."""
    before = tried(running(asking("a", 4), asking("b", 4), policy=EX), static())
    places = {life: replace(place, wish=None) for life, place in places_of(before).items()}

    after = step(tried(before, EX), ev.PolicyChanged(configuration="before", back=places), static()).node

    assert (after.grants, after.containers["b"].missed) == (before.grants, None)


def test_a_release_outlives_what_was_missed() -> None:
    """The end of the try within a release brings it back, too."""
    before = tried(running(asking("a", 4), asking("b", 4), policy=EX), static())
    during = step(tried(before, EX), ev.Released("somebody"), EX).node

    event = ev.PolicyChanged(configuration="before", keeps_release=True, back=places_of(before))

    assert step(during, event, static()).node.containers == before.containers


@pytest.mark.parametrize(("policy", "apply_all"), ALL_SHARE)
def test_who_cannot_return_is_placed(policy: Policy, apply_all: bool) -> None:
    """An owner, of whose place a CPU has gone offline meanwhile, gets other CPUs; without room it misses them."""
    gone = BEFORE.grants["a"].exclusive
    during = tried(BEFORE, policy, apply_all=apply_all)
    roomy = step(during, ev.TopologyChanged(machine(nodes=2, cores=4, threads=1, allowed=MACHINE.cpus - gone)), policy)
    narrow = step(
        during, ev.TopologyChanged(machine(nodes=1, cores=4, threads=1, allowed=frozenset({0, 1, 3}))), policy
    )

    after, without_room = back(roomy.node, BEFORE, static()), back(narrow.node, BEFORE, static())

    assert (len(after.grants["a"].exclusive), after.containers["a"].missed) == (2, None)
    assert after.grants["b"] == BEFORE.grants["b"]
    assert without_room.grants["b"].exclusive == BEFORE.grants["b"].exclusive
    assert without_room.containers["a"].missed == Missed(why=Miss.UNFIT)


@pytest.mark.parametrize(("policy", "apply_all"), ALL_SHARE)
@pytest.mark.parametrize("is_known", [True, False], ids=["refused-before", "asked-first-within"])
def test_a_resize_without_room_keeps_the_place(policy: Policy, apply_all: bool, is_known: bool) -> None:
    """The tried policy took a size for which there is no room: the container keeps its CPUs, and grows later."""
    before = running(asking("a", 4), asking("b", 2), asking("c", 0.5))
    before = step(before, ev.ResizeRefused("b", sizes(5), 1.0), static()).node if is_known else before
    during = step(tried(before, policy, apply_all=apply_all), ev.ContainerResized("b", sizes(5)), policy).node
    assert waiting(during, "b") is None

    decision = step(during, ev.PolicyChanged(configuration="before", back=places_of(before), at_s=7.0), static())

    after, since_s = decision.node, 1.0 if is_known else 7.0
    assert cpus(after) == cpus(before)
    assert waiting(after, "b") == Desired(sizes=sizes(5), since_s=since_s, told=True, in_force=True)
    assert after.containers["b"].cpu_milli == 2000
    assert shortfalls(after, static()) == []
    assert any(reason.key == "b" and "asks for 5" in reason.text for reason in decision.reasons)
    alone = step(after, ev.ContainerGone("a"), static()).node
    grown = step(alone, ev.Promoted("b"), static()).node
    assert (len(grown.grants["b"].exclusive), waiting(grown, "b")) == (5, None)


@pytest.mark.parametrize(("policy", "apply_all"), ALL_SHARE)
def test_a_resize_with_room_is_made_good(policy: Policy, apply_all: bool) -> None:
    """The tried policy gave no CPUs for it; the former one does at once."""
    during = step(tried(BEFORE, policy, apply_all=apply_all), ev.ContainerResized("a", sizes(3)), policy).node

    after = back(during, BEFORE, static())

    assert len(after.grants["a"].exclusive) == 3
    assert after.grants["a"].exclusive > BEFORE.grants["a"].exclusive
    assert (after.containers["a"].cpu_milli, violations(after)) == (3000, [])


def test_who_missed_its_place_and_was_resized_goes_on_to_miss_it() -> None:
    """It has no CPUs to keep: what it misses is a place for its new size."""
    before = tried(running(asking("a", 4), asking("b", 4), policy=EX), static())
    during = step(tried(before, EX), ev.ContainerResized("b", sizes(5)), EX).node

    after = back(during, before, static()).containers["b"]

    assert (after.cpu_milli, after.desired, after.missed) == (5000, None, Missed(why=Miss.UNFIT))


def test_a_resize_about_which_no_policy_is_asked_is_made_good_later() -> None:
    """The end of the try of the policy none, while nothing can be stored: it has its place, and misses the rest."""
    during = step(tried(BEFORE, NONE), ev.ContainerResized("a", sizes(3)), NONE).node

    after = back(during, BEFORE, Fallback())

    assert after.grants == BEFORE.grants
    assert {key: each.missed for key, each in after.containers.items() if each.missed} == {
        "a": Missed(why=Miss.BYPASSED)
    }
    assert len(step(after, ev.Promoted("a"), static()).node.grants["a"].exclusive) == 3


tries = st.tuples(st.sampled_from([*POLICIES.values(), EX, NONE]), st.booleans())
"""The tried policy, and whether it applies to all."""


@given(machines(), st.sampled_from(sorted(POLICIES)), tries, lives_with_found, lives)
def test_whatever_happens(
    topology: Topology, first: str, trial: tuple[Policy, bool], life: list[ev.Event], later: list[ev.Event]
) -> None:
    """After random lives under two policies nobody is on CPUs of another, and whoever was not resized has its place."""
    before = Node(topology)
    for _, _, node in live(topology, POLICIES[first], life):
        before = node
    policy, apply_all = trial
    during = tried(before, policy, apply_all=apply_all)
    used = {each.life for each in before.containers.values()}
    for event in later:
        if isinstance(event, ev.ContainerCreating) and event.container.key in used:
            continue
        used |= reservations(event)
        with suppress(Refused):
            during = step(during, event, policy).node
    if before.released:
        return

    after = back(during, before, POLICIES[first])

    known = {*violations(before), *violations(during)}
    assert [each for each in violations(after) if each not in known] == []
    places = places_of(before)
    for key, container in after.containers.items():
        place = places.get(container.life)
        if place is None or key not in after.grants or container.stays:
            continue
        if container.cpu_milli == place.cpu_milli and not during.watched_cpus & place.grant.exclusive:
            assert after.grants[key].exclusive == place.grant.exclusive
        if place.wish and place.wish.missed:
            assert container.missed


@pytest.mark.parametrize("released", [False, True])
def test_who_must_not_be_updated_owns_its_cpus_again_after_none_was_tried(released: bool) -> None:
    """The release of that try has left it where it is; who came meanwhile makes room, also after another release."""
    before = running(replace(asking("card", 2), stays=True), asking("b", 0.5))
    during = came(tried(before, NONE), NONE, "late", 0.5)
    assert "card" not in during.grants
    if released:
        during = step(during, ev.Released("somebody asked"), NONE).node
        held = ev.PolicyChanged(configuration="before", back=places_of(before), keeps_release=True)
        during = step(during, held, static()).node
        assert during.former["card"] == before.grants["card"]
        after = step(during, ev.PolicyChanged(apply_all=True, configuration="before"), static()).node
    else:
        after = back(during, before, static())

    assert after.grants["card"] == before.grants["card"]
    assert not after.grants["b"].cpus & after.grants["card"].exclusive
    assert (after.released, violations(after)) == ("", [])
