"""What runs already is taken in where it is, and only conflicts make anybody move."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import NotEnough
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.grant import Applied
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Miss, Missed, Pod, QosClass
from criproxy.placement.decision import Decision
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerExited, ContainerGone, Event, Found, Present
from criproxy.placement.policies import BUILTIN
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of
from tests.placement.lives import found, live, lives, lives_with_found, machines

POLICY = policy_of("static", {"reservedCpus": "0"})
EMPTY = Node(machine(cores=8, threads=1))
MEMS = frozenset({0})
PLACING = [name for name in sorted(BUILTIN) if name != "none"]


def build(name: str, reserved: str = "0") -> Policy:
    """The policy *name* with reserved CPUs."""
    return policy_of(name, {"reservedCpus": reserved})


def present(key: str, cpus: str | None, owned: int = 0, *, ours: bool = True) -> Present:
    """A running container on *cpus* that asks for *owned* whole CPUs, or for 250m."""
    qos = QosClass.GUARANTEED if owned else QosClass.BURSTABLE
    container = Container(
        key=key,
        pod="s",
        name=key,
        qos=qos,
        cpu_milli=owned * 1000 or 250,
        state=ContainerState.RUNNING,
        reservation=f"r-{key}" if ours else "",
    )
    return Present(container, None if cpus is None else Applied(parse_cpuset(cpus), MEMS))


def places(decision: Decision) -> dict[str, str]:
    """The CPUs of each container, with a star where it owns them."""
    grants = decision.node.grants.items()
    return {key: format_cpuset(grant.cpus) + "*" * bool(grant.exclusive) for key, grant in grants}


@pytest.mark.parametrize("together", [True, False])
def test_what_never_ran_has_given_way_to_the_next_attempt(together: bool) -> None:
    """Both were created for the same CPUs; the later one runs there, and stays."""
    later = present("later", "1-2", 2)
    later = replace(later, container=replace(later.container, name="c", attempt=1))
    older = present("older", "1-2", 2)
    older = replace(older, container=replace(older.container, name="c", state=ContainerState.CREATED))
    sharer = present("sharer", "0,3-7")
    pods = (Pod(key="s"),)
    if together:
        decision = step(EMPTY, Found(pods, (older, later, sharer)), POLICY)
    else:
        decision = step(step(EMPTY, Found(pods, (later, sharer)), POLICY).node, Found((), (older,)), POLICY)

    assert places(decision) == {"later": "1-2*", "sharer": "0,3-7"}
    assert decision.updates == ()
    assert "older" in decision.node.containers


def test_a_narrow_place_is_kept_as_well() -> None:
    """A container on a part of the shared CPUs stays there: it is not moved because we started."""
    assert places(step(EMPTY, Found((), (present("a", "5", ours=False),)), POLICY)) == {"a": "5"}


def test_who_loses_all_of_its_cpus_to_an_owner_gets_available_ones() -> None:
    """Whether it was found there just now, or an owner is found that was made there meanwhile."""
    options = {"reservedCpus": "0", "availableResources": {"cpu": "cpuset:0-4"}}
    policy = policy_of("static", options)
    everybody = (present("owner", "1-2", 2), present("together", "1"), present("before", "4"))

    decision = step(EMPTY, Found((), everybody), policy)
    assert places(decision) == {"owner": "1-2*", "together": "0,3-4", "before": "4"}

    decision = step(decision.node, Found((), (present("next", "4", 1),)), policy)
    assert places(decision) == {"owner": "1-2*", "together": "0,3", "before": "0,3", "next": "4*"}


def test_before_a_change_of_the_policy_nobody_gets_cpus_that_are_not_its_own() -> None:
    """Another policy has placed them: who has CPUs alone keeps them, and who shares goes on to share."""
    everybody = (present("alone", "1-2", 2), present("shares", "0,3-7", 1), present("also", "0,3-7"))

    decision = step(EMPTY, Found((), everybody, is_before_change=True), POLICY)

    assert places(decision) == {"alone": "1-2*", "shares": "0,3-7", "also": "0,3-7"}
    assert decision.updates == ()
    assert places(step(EMPTY, Found((), everybody), POLICY)) == {"alone": "1-2*", "shares": "3*", "also": "0,4-7"}


def test_two_owners_of_one_cpu_are_parted() -> None:
    """The first keeps its place; the second keeps what is left of its own and gets a substitute."""
    decision = step(EMPTY, Found((), (present("a", "1-2", 2), present("b", "2-3", 2))), POLICY)

    assert places(decision) == {"a": "1-2*", "b": "3-4*"}
    assert any("s/b" in reason or "b cannot keep" in reason for reason in decision.sentences)


def test_an_owner_that_is_back_on_cpus_kept_for_its_pod_has_lost_nothing() -> None:
    """A list of the runtime did not have it for a moment: no sentence says that it cannot keep what it has again."""
    node = step(EMPTY, Found((Pod(key="s", uid="u"),), (present("a", "1-2", 2),)), POLICY).node
    node = step(node, ContainerGone("a"), POLICY).node
    assert node.kept["u"].cpus == {1, 2}

    decision = step(node, Found((), (present("a", "1-2", 2),)), POLICY)

    assert places(decision) == {"a": "1-2*"}
    assert not any("cannot keep" in reason for reason in decision.sentences)
    assert any("a has CPUs 1-2 again" in reason for reason in decision.sentences)


def test_an_owner_on_a_reserved_cpu_gets_another() -> None:
    """What is not legal any more is repaired."""
    assert places(step(EMPTY, Found((), (present("a", "0-1", 2),)), POLICY)) == {"a": "1-2*"}


def test_an_owner_that_grew_when_the_store_was_lost_grows() -> None:
    """It keeps the CPU that it has."""
    everybody = (present("a", "4", 2), present("b", "0-3,5-7"))

    assert places(step(EMPTY, Found((), everybody), POLICY)) == {"a": "1,4*", "b": "0,2-3,5-7"}


def test_an_owner_without_room_shares() -> None:
    """What runs stays known and has a place, even where there is none of its kind; the reason says so."""
    everybody = (present("a", "1-4", 4), present("b", "5-7", 3), present("c", None, 2))

    decision = step(EMPTY, Found((), everybody), POLICY)

    assert places(decision) == {"a": "1-4*", "b": "5-7*", "c": "0"}
    assert any("c asks for 2 exclusive CPUs" in reason for reason in decision.sentences)


def test_under_watch_others_stay_and_nobody_owns_their_cpus() -> None:
    """An owner that is there keeps its CPUs; the next one gets none that a foreign container is on."""
    everybody = (present("a", "1", 1), present("b", "1-3", ours=False), present("c", "0,2-7"))
    event = Found((), everybody, watch=True)
    newcomer = Container(key="r", pod="s", name="n", qos=QosClass.GUARANTEED, cpu_milli=1000)

    watched = step(EMPTY, event, POLICY)
    placed = step(watched.node, ContainerCreating(newcomer), POLICY)

    assert places(watched) == {"a": "1*", "c": "0,2-7"}
    assert watched.node.watched_cpus == {1, 2, 3}
    assert watched.node.applied["b"].cpus == {1, 2, 3}
    assert placed.grant is not None
    assert placed.grant.exclusive == {4}
    with pytest.raises(NotEnough, match="containers that criproxy does not move run on CPUs 1-3"):
        step(placed.node, ContainerCreating(replace(newcomer, key="q", name="m", cpu_milli=4000)), POLICY)
    assert step(placed.node, ContainerExited("b"), POLICY).node.watched_cpus == frozenset()


def test_who_was_watched_is_placed_once_it_may_be() -> None:
    """The option was changed to pin; what has a place already is left alone."""
    event = Found((), (present("a", "1", 1), present("b", "1-3", ours=False)), watch=True)
    watched = step(EMPTY, event, POLICY).node

    assert step(watched, event, POLICY).node is watched
    assert places(step(watched, replace(event, watch=False), POLICY)) == {"a": "1*", "b": "2-3"}


def test_who_is_known_or_being_created_or_has_exited_is_not_taken_in() -> None:
    """A create that has not been confirmed yet speaks for its container."""
    creating = step(EMPTY, ContainerCreating(replace(present("a", None, 1).container, key="r-a")), POLICY).node
    ended = replace(
        present("b", "1", 1), container=replace(present("b", "1", 1).container, state=ContainerState.EXITED)
    )

    assert step(creating, Found((), (present("a", "1", 1), ended)), POLICY).node is creating


def test_memory_is_never_moved() -> None:
    """A grant has the nodes that the container has; where those are no legal grant, nobody touches them."""
    node = Node(machine(nodes=2, cores=4, threads=1))
    here = replace(present("a", "4-5", 2), has=Applied(parse_cpuset("4-5"), frozenset({0})))
    gone = replace(present("b", "0-3"), has=Applied(parse_cpuset("0-3"), frozenset({5})))

    grants = step(node, Found((), (here, gone)), POLICY).node.grants

    assert grants["a"].mems == {0}
    assert not grants["b"].mems


def test_pools_of_the_policy_are_found_again() -> None:
    """A container in a NUMA node grows back into it when its neighbour goes; kube-system stays reserved."""
    policy = build("topology-aware")
    node = Node(machine(nodes=2, cores=4, threads=1))
    system = present("k", "0")
    system = replace(system, container=replace(system.container, namespace="kube-system"))
    everybody = (present("a", "6-7"), present("b", "4-5", 2), system)

    decision = step(node, Found((), everybody), policy)
    after = step(decision.node, ContainerGone("b"), policy)

    assert places(decision) == {"a": "6-7", "b": "4-5*", "k": "0"}
    assert places(after) == {"a": "4-7", "k": "0"}


class Broken:
    """A policy that raises."""

    def place(self, node: Node, container: Container) -> object:
        """Never."""
        raise ZeroDivisionError

    release = place


def test_a_policy_that_raises_does_not_keep_us_from_knowing_what_runs() -> None:
    """Everybody shares what they are on."""
    assert places(step(EMPTY, Found((), (present("a", "1-2", 2),)), Broken())) == {"a": "1-2"}  # type: ignore[arg-type]


@given(st.sampled_from(PLACING), machines(), lives)
def test_a_lost_store_is_rebuilt_from_what_runs(name: str, topology: Topology, life: list[Event]) -> None:
    """Whatever has happened before: everybody has the CPUs that they had, and nothing has to be sent."""
    policy = build(name)
    before = [Node(topology), *(node for *_, node in live(topology, policy, life))][-1]
    for key in [key for key, container in before.containers.items() if key == container.reservation]:
        before = step(before, ContainerGone(key), policy).node  # it was never more than a plan

    decision = step(Node(topology), Found((), tuple(as_found(before))), policy)

    grants = decision.node.grants
    assert {key: grant.cpus for key, grant in grants.items()} == {k: g.cpus for k, g in before.grants.items()}
    assert {key for key in grants if grants[key].exclusive} == {k for k, g in before.grants.items() if g.exclusive}
    assert {key: grants[key].mems for key in grants} == {key: grant.mems for key, grant in before.grants.items()}
    assert decision.updates == ()


def as_found(node: Node) -> Iterator[Present]:
    """Everybody who has a place on *node*, as the runtime shows them: ours, and where they belong."""
    for key, grant in node.grants.items():
        container = replace(node.containers[key], state=ContainerState.RUNNING, reservation=f"r-{key}")
        yield Present(container, Applied(grant.cpus, grant.mems))


@given(st.sampled_from(PLACING), machines(), lives_with_found, found)
def test_nobody_becomes_the_owner_of_a_watched_cpu(
    name: str, topology: Topology, life: list[Event], event: Found
) -> None:
    """While others' containers are only watched, no event gives their CPUs to a further owner."""
    policy = build(name)
    ours = [event if not isinstance(event, Found) else replace(event, watch=True) for event in life]
    for before, happened, after in live(topology, policy, [replace(event, watch=True), *ours]):
        if not isinstance(happened, Found):
            assert not (after.exclusive_cpus - before.exclusive_cpus) & before.watched_cpus, happened


@pytest.mark.parametrize("ours", [True, False])
def test_one_of_ours_that_cannot_go_on_alone_is_to_be_promoted(ours: bool) -> None:
    """It was promised CPUs of its own, and the store that knew of it is lost: ``--check`` tells, and it gets them."""
    there = (present("a", "1-6", 6, ours=ours), present("b", "0,7", 2, ours=ours))
    node = step(EMPTY, Found(containers=there), POLICY).node

    assert not node.grants["b"].exclusive
    assert node.containers["b"].missed == (Missed(why=Miss.UNFIT) if ours else None)
    assert node.containers["a"].missed is None
