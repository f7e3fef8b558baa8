"""What a container should have and has not: remembered, given when there is room, never a change of CPUs."""

from dataclasses import replace

import pytest

from criproxy.errors import NotEnough
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, Grant
from criproxy.model.node import Node
from criproxy.model.record import Kind
from criproxy.model.workload import Container, ContainerState, Desired, Miss, Missed, Pod, QosClass
from criproxy.placement import events as ev
from criproxy.placement.engine import step
from criproxy.placement.policies.none import Fallback
from criproxy.placement.records.history import entries_of
from criproxy.placement.rules.promotion import as_before
from criproxy.simulate.hosts import GIB, machine
from tests.placement.built import policy_of
from tests.placement.test_memory_only import guaranteed, sizes

STATIC = policy_of("static", {"reservedCpus": "0"})
MACHINE = machine(nodes=1, cores=4, threads=1)  # CPUs 1 to 3 may be exclusive


def node_of(*containers: Container, exclusive: dict[str, str]) -> Node:
    """A node of one pod, on which whoever is not in *exclusive* shares what is left."""
    owned = {key: parse_cpuset(cpus) for key, cpus in exclusive.items()}
    shared = MACHINE.cpus - frozenset().union(*owned.values())
    places = {c.key: Grant(owned.get(c.key, shared), MACHINE.mems, owned.get(c.key, frozenset())) for c in containers}
    pods = {"s": Pod(key="s", uid="u", name="p"), "s1": Pod(key="s1", uid="u", name="p", attempt=1)}
    return Node(MACHINE, pods, {c.key: c for c in containers}, places)


def refused(node: Node, key: str, cpus: int, at_s: float = 1.0) -> Node:
    """The node after a resize to so many CPUs was refused."""
    return step(node, ev.ResizeRefused(key, sizes(cpus, GIB), at_s), STATIC).node


def test_a_refused_size_is_remembered_since_its_first_refusal() -> None:
    """Another size is another refusal; the places stay."""
    before = node_of(guaranteed("a", 1), guaranteed("b", 2), exclusive={"a": "1", "b": "2-3"})
    once = refused(before, "a", 3)
    assert once.containers["a"].desired == Desired(sizes=sizes(3, GIB), since_s=1.0)
    assert once.containers["a"].sizes == before.containers["a"].sizes
    assert refused(once, "a", 3, at_s=2.0) is once
    assert refused(once, "a", 2, at_s=2.0).containers["a"].desired == Desired(sizes=sizes(2, GIB), since_s=2.0)
    assert once.grants is before.grants


@pytest.mark.parametrize("sandbox", ["s", "s1"])
def test_the_next_attempt_gets_what_the_last_one_had(sandbox: str) -> None:
    """In the same sandbox or another one of its pod; the memory and the quota are those that it asks for."""
    before = refused(node_of(guaranteed("a", 1), guaranteed("b", 2), exclusive={"a": "1", "b": "2-3"}), "a", 3)
    ended = step(before, ev.ContainerExited("a"), STATIC).node
    newcomer = replace(guaranteed("r", 3, 2 * GIB), name="a", attempt=1, pod=sandbox, reservation="r")
    with pytest.raises(NotEnough):
        step(ended, ev.ContainerCreating(newcomer), STATIC)
    smaller = as_before(ended, newcomer, 5.0)
    assert smaller is not None
    assert (smaller.cpu_milli, smaller.memory_limit_bytes) == (1000, 2 * GIB)
    assert smaller.cpu_quota == newcomer.cpu_quota
    assert smaller.desired == Desired(sizes=newcomer.sizes, since_s=1.0, told=True)
    assert len(step(ended, ev.ContainerCreating(smaller), STATIC).node.grants["r"].exclusive) == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"attempt": 0}, id="no-later-attempt"),
        pytest.param({"name": "c"}, id="another-name"),
        pytest.param({"pod": "elsewhere"}, id="another-pod"),
        pytest.param({"cpu_milli": 2000}, id="a-size-that-was-not-refused"),
    ],
)
def test_nobody_else_gets_a_smaller_place(other: dict[str, object]) -> None:
    """What was never refused to an earlier attempt is refused as ever."""
    before = refused(node_of(guaranteed("a", 1), exclusive={"a": "1"}), "a", 3)
    newcomer = replace(guaranteed("r", 3), name="a", attempt=1)
    assert as_before(before, newcomer, 5.0) is not None
    assert as_before(before, replace(newcomer, **other), 5.0) is None  # type: ignore[arg-type]


def waiting() -> Node:
    """`a` has one CPU and should have three, as the runtime was told; `b` has the others."""
    told = Desired(sizes=sizes(3, GIB), since_s=1.0, told=True)
    container = replace(guaranteed("a", 1), cpu_quota=sizes(3, GIB).cpu_quota, desired=told)
    return node_of(container, guaranteed("b", 2), exclusive={"a": "1", "b": "2-3"})


def test_it_grows_when_there_is_room() -> None:
    """Until then nothing changes."""
    before = waiting()
    assert step(before, ev.Promoted("a"), STATIC).node is before
    free = step(before, ev.ContainerExited("b"), STATIC).node
    decision = step(free, ev.Promoted("a"), STATIC)
    assert decision.node.grants["a"].exclusive == {1, 2, 3}
    assert decision.node.containers["a"].desired is None
    assert decision.node.containers["a"].cpu_milli == 3000
    assert {update.key for update in decision.updates} == {"a"}


def test_more_memory_for_one_that_waits_is_no_question_of_cpus() -> None:
    """The kubelet names the size that it believes in force; the container gets the memory, and waits on."""
    decision = step(waiting(), ev.ContainerResized("a", sizes(3, 2 * GIB)), STATIC)
    container = decision.node.containers["a"]
    assert (container.cpu_milli, container.memory_limit_bytes) == (1000, 2 * GIB)
    assert container.desired == Desired(sizes=sizes(3, 2 * GIB), since_s=1.0, told=True)
    assert decision.node.grants["a"].exclusive == {1}


def missing() -> Node:
    """`a`, which came while criproxy failed, shares; nobody else is there."""
    return node_of(replace(guaranteed("a", 2), missed=Missed(why=Miss.FAILED, since_s=1.0)), exclusive={})


def test_who_came_unplaced_is_placed() -> None:
    """And what was missed is forgotten."""
    after = step(missing(), ev.Promoted("a"), STATIC).node
    assert len(after.grants["a"].exclusive) == 2
    assert after.containers["a"].missed is None


def beside(**other: object) -> Node:
    """`missing`, with `b`, a container that shares all CPUs with `a`, too."""
    before = missing().replace(applied={"a": Applied(MACHINE.cpus, MACHINE.mems)})
    container = replace(guaranteed("b", 2), cpu_milli=100, qos=QosClass.BURSTABLE, **other)  # type: ignore[arg-type]
    return before.replace(
        containers={**before.containers, "b": container},
        grants={**before.grants, "b": before.grants["a"]},
        applied={**before.applied, "b": before.applied["a"]},
    )


def test_who_came_unplaced_counts_as_that_until_it_is_in_its_place() -> None:
    """And nobody else is on its CPUs: until both have been moved, the place is only decided."""
    before = beside()
    decided = step(before, ev.Promoted("a"), STATIC).node
    owned = decided.grants["a"].exclusive
    assert len(owned) == 2
    assert decided.containers["a"].missed == before.containers["a"].missed
    assert step(decided, ev.Promoted("a"), STATIC).node is decided
    moved = step(decided, ev.UpdateApplied("a", Applied(owned, MACHINE.mems)), STATIC).node
    assert step(moved, ev.Promoted("a"), STATIC).node is moved, "the other is still there"
    left = step(moved, ev.UpdateApplied("b", Applied(MACHINE.cpus - owned, MACHINE.mems)), STATIC).node
    there = step(left, ev.Promoted("a"), STATIC)
    assert there.node.containers["a"].missed is None
    assert (there.node.grants, there.updates) == (decided.grants, ())


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"state": ContainerState.UNKNOWN, "reservation": "b"}, id="perhaps-never-created"),
        pytest.param({"state": ContainerState.CREATED}, id="not-started"),
    ],
)
def test_who_does_not_run_keeps_nobody_from_being_in_its_place(other: dict[str, object]) -> None:
    """Although it is not known to have left the CPUs."""
    decided = step(beside(**other), ev.Promoted("a"), STATIC).node
    owned = decided.grants["a"].exclusive
    moved = step(decided, ev.UpdateApplied("a", Applied(owned, MACHINE.mems)), STATIC).node
    assert step(moved, ev.Promoted("a"), STATIC).node.containers["a"].missed is None


def test_who_ran_outside_of_its_place_since_nobody_knows_when_is_done_with_at_once() -> None:
    """There is no time to be listed."""
    before = missing().replace(applied={"a": Applied(MACHINE.cpus, MACHINE.mems)})
    container = replace(before.containers["a"], missed=Missed(why=Miss.FAILED))
    after = step(before.replace(containers={"a": container}), ev.Promoted("a"), STATIC).node
    assert after.containers["a"].missed is None


@pytest.mark.parametrize("has", [Applied(MACHINE.cpus, MACHINE.mems), None])
def test_who_starts_outside_of_its_place_is_not_done_with(has: Applied | None) -> None:
    """It may start while nobody moves it; without a cpuset, on every CPU."""
    before = missing().replace(applied={"a": has} if has else {})
    missed = Missed(why=Miss.BYPASSED, since_s=1.0, unseen=True)
    container = replace(before.containers["a"], state=ContainerState.CREATED, missed=missed)
    decided = step(before.replace(containers={"a": container}), ev.Promoted("a"), STATIC).node
    assert decided.containers["a"].missed == missed

    moved = step(decided, ev.UpdateApplied("a", Applied(decided.grants["a"].exclusive, MACHINE.mems)), STATIC).node
    assert step(moved, ev.Promoted("a"), STATIC).node.containers["a"].missed is None


@pytest.mark.parametrize("event", [ev.Promoted("a"), ev.PolicyChanged(apply_all=True, configuration="new")])
def test_how_long_it_ran_unplaced_is_told_however_it_gets_its_place(event: ev.Event) -> None:
    """A promotion, or a change of the policy."""
    before = missing()
    entries = entries_of(before, event, step(before, event, STATIC), 5.0)
    (entry,) = [each for each in entries if "unplaced_since_s" in each.facts]
    assert (entry.about and entry.about.key, entry.kind, entry.facts["unplaced_since_s"]) == ("a", Kind.RESIZED, 1.0)
    assert entry.sentences[-1].endswith("to 1970-01-01T00:00:05.000Z (4.0 s)")


def test_nobody_is_placed_while_the_policy_is_not_asked_or_the_node_is_released() -> None:
    """Nor one that has exited, or is not known."""
    before = missing()
    assert step(before, ev.Promoted("a"), Fallback()).node is before
    released = before.replace(released="for the test")
    assert step(released, ev.Promoted("a"), STATIC).node is released
    ended = step(before, ev.ContainerExited("a"), STATIC).node
    assert step(ended, ev.Promoted("a"), STATIC).node is ended
    assert step(before, ev.Promoted("x"), STATIC).node is before


def test_a_resize_that_no_policy_was_asked_about_is_made_good_later() -> None:
    """During an automatic bypass the container keeps its CPUs, and gets the rest when it is over."""
    before = node_of(guaranteed("a", 1), exclusive={"a": "1"})
    during = step(before, ev.ContainerResized("a", sizes(2, GIB)), Fallback()).node
    assert during.grants["a"].exclusive == parse_cpuset("1")
    assert during.containers["a"].missed == Missed(why=Miss.BYPASSED)
    after = step(during, ev.Promoted("a"), STATIC).node
    assert len(after.grants["a"].exclusive) == 2
    assert after.containers["a"].missed is None


def test_whoever_has_no_room_when_all_are_placed_anew_gets_it_later() -> None:
    """It shares, and is remembered until there is room."""
    before = node_of(guaranteed("a", 2), guaranteed("b", 2), exclusive={})
    after = step(before, ev.PolicyChanged(apply_all=True, configuration="new"), STATIC).node
    shares = next(key for key in "ab" if not after.grants[key].exclusive)
    assert after.containers[shares].missed == Missed(why=Miss.UNFIT)
    owner = next(key for key in "ab" if key != shares)
    alone = step(after, ev.ContainerExited(owner), STATIC).node
    made = step(alone, ev.Promoted(shares), STATIC).node
    assert len(made.grants[shares].exclusive) == 2


def test_a_policy_change_that_was_not_decided_by_the_policy_is_made_good_later() -> None:
    """A release that is undone during an automatic bypass: all share, and are remembered."""
    before = node_of(guaranteed("a", 2), exclusive={}).replace(released="for the test", grants={})
    after = step(before, ev.PolicyChanged(apply_all=True, configuration="new"), Fallback()).node
    assert after.containers["a"].missed == Missed(why=Miss.BYPASSED)
    again = step(after, ev.PolicyChanged(apply_all=True, configuration="newer"), STATIC).node
    assert len(again.grants["a"].exclusive) == 2
    assert again.containers["a"].missed is None


def test_a_size_that_was_refused_may_come_to_be_believed_in_force() -> None:
    """It passed unseen afterwards: the time is that of the first refusal, and a later one does not undo it."""
    before = refused(node_of(guaranteed("a", 1), guaranteed("b", 2), exclusive={"a": "1", "b": "2-3"}), "a", 3)
    believed = step(before, ev.ResizeRefused("a", sizes(3, GIB), 2.0, believed=True), STATIC).node
    assert believed.containers["a"].desired == Desired(sizes=sizes(3, GIB), since_s=1.0, told=True, in_force=True)
    assert refused(believed, "a", 3, at_s=3.0) is believed
