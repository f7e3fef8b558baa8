"""With `burst: idle`, the quota of a container that shares CPUs is lifted exactly while a CPU near it is idle."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import Refused
from criproxy.model.attributes import granted, in_place
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, CpuQuota
from criproxy.model.machine.controllable import Controllable
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Pod, QosClass, Sizes
from criproxy.placement import events as ev
from criproxy.placement.alloc.booked_cpus import booked_cpus
from criproxy.placement.answers.rehearsal import fit
from criproxy.placement.decision import Decision, target
from criproxy.placement.engine import step
from criproxy.placement.options.class_rules import named_part
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback, NonePolicy
from criproxy.placement.records.history import causes, entries_of
from criproxy.placement.rules.attributes.quota import owns_all
from criproxy.simulate.hosts import machine
from tests.placement.classes.policy import ALLOW, contents
from tests.placement.lives import events, found, machines, released, reservations

TWO = machine(nodes=2, cores=4, threads=1)
"""CPUs 0-3 and 4-7."""
ONE = machine(nodes=1, cores=4, threads=1)
"""With a container of 500m and an owner, one CPU is idle; with two owners, none is."""
CLASS = "classes: {batch: {for: {qos: [Burstable]}, cpu: {burst: idle}}}\n"
EVERYBODY = "classes: {batch: {for: {qos: [Guaranteed, Burstable, BestEffort]}, cpu: {burst: idle}}}\n"
HAS = "and web/a has the class batch with burst: idle"
LIFTED, RESTORED, LEFT = CpuQuota.LIFTED, CpuQuota.RESTORED, CpuQuota.LEFT


@cache
def policy(classes: str = CLASS, name: str = "topology-aware", more: str = "") -> Policy:
    """The policy of a file."""
    made = contents(f"policy: {name}\nreservedCpus: 0\n{classes}{more}", Controllable(), TWO).settings
    assert made is not None
    return made.build_policy()


def container(name: str, milli: int = 500, limit: int | None = 1000, qos: QosClass = QosClass.BURSTABLE) -> Container:
    """A container that is about to be created."""
    made = Container(key=f"r-{name}", pod=f"p-{name}", name=name, namespace="", pod_name="web", qos=qos)
    return replace(made, reservation=f"r-{name}").resized(Sizes(cpu_milli=milli, cpu_limit_milli=limit))


def owner(name: str, cpus: int = 1) -> Container:
    """One with exclusive CPUs."""
    return container(name, 1000 * cpus, 1000 * cpus, QosClass.GUARANTEED)


def created(node: Node, new: Container, under: Policy | None = None) -> Node:
    """The node after its create was answered."""
    under = under or policy()
    node = step(node, ev.ContainerCreating(new), under).node
    return step(node, ev.ContainerCreated(new.key, new.name), under).node


def quota(decision: Decision | Node, key: str = "a") -> CpuQuota:
    """What becomes of the quota of a container."""
    node = decision.node if isinstance(decision, Decision) else decision
    return node.grants[key].quota


def test_it_has_no_quota_from_its_create_on_where_a_cpu_is_idle() -> None:
    """The create message says so, and the reason names the class and the CPUs."""
    decision = step(Node(TWO), ev.ContainerCreating(container("a")), policy())

    assert quota(decision, "r-a") is LIFTED
    assert decision.node.applied["r-a"] == granted(decision.node.grants["r-a"])
    assert decision.node.applied["r-a"].lifted
    assert decision.sentences[-1] == (
        "3 CPUs of NUMA node 1 are idle, and web/a has the class batch with burst: idle: "
        "its CFS quota, 100000 of 100000 µs, is lifted"
    )


@pytest.mark.parametrize(
    ("classes", "new", "expected"),
    [
        pytest.param(CLASS, container("a"), LIFTED, id="shares"),
        pytest.param(CLASS, container("a", limit=None), LEFT, id="without-limit"),
        pytest.param("", container("a"), LEFT, id="without-class"),
        pytest.param(CLASS, owner("a"), LEFT, id="of-another-class"),
        pytest.param(EVERYBODY, owner("a"), LEFT, id="owner"),
        pytest.param(CLASS, container("a", 3900, 4000), LEFT, id="takes-the-last-idle-cpu-itself"),
        pytest.param(CLASS.replace("idle", "20%"), container("a"), LEFT, id="percentage"),
    ],
)
def test_whose_quota_is_lifted(classes: str, new: Container, expected: CpuQuota) -> None:
    """One with a limit and the class, that shares CPUs, while a CPU of its NUMA nodes is idle."""
    decision = step(Node(TWO), ev.ContainerCreating(new), policy(classes))
    assert quota(decision, "r-a") is expected
    assert decision.node.applied["r-a"].lifted is (expected is LIFTED)


def test_the_owner_of_the_last_idle_cpu_brings_the_quota_back_in_the_same_step() -> None:
    """So the update goes out with its create, and the next leave lifts the quota again."""
    node = created(created(Node(ONE), container("a")), owner("first"))
    assert quota(node) is LIFTED

    event = ev.ContainerCreating(owner("last"))
    taken = step(node, event, policy())
    assert (quota(taken), [each.key for each in taken.updates]) == (RESTORED, ["a"])
    assert causes(event, node, taken) == {"a": f"no CPU of NUMA node 0 is idle, {HAS}"}
    wanted = target(taken.node, "a", frozenset())
    assert wanted
    assert wanted.lifted is False
    assert [entry.about.key for entry in entries_of(node, event, taken) if entry.about] == ["r-last"]

    left = step(created(node, owner("last")), ev.ContainerGone("last"), policy())
    assert (quota(left), [each.key for each in left.updates]) == (LIFTED, ["a"])
    entries = list(entries_of(node, ev.ContainerGone("last"), left))
    assert not any("burst" in text for entry in entries for text in entry.sentences)


def test_requests_that_fill_the_node_bring_it_back() -> None:
    """Whole CPUs count: a rest of one is not idle."""
    node = created(Node(ONE), container("a", 1000, 1000), policy())
    assert quota(node) is LIFTED
    node = created(node, container("b", 1001), policy())
    assert (quota(node), quota(node, "b")) == (RESTORED, LEFT)
    resized = step(node, ev.ContainerResized("b", Sizes(cpu_milli=1000, cpu_limit_milli=2000)), policy())
    assert (quota(resized), quota(resized, "b")) == (LIFTED, LIFTED)
    assert "b has the class batch" in resized.sentences[0] or "b has the class batch" in resized.sentences[-2]


def test_the_kubelet_changes_the_limit_meanwhile() -> None:
    """It stays lifted; without a limit, nothing is left to lift; a repeated create says the same again."""
    node = created(Node(TWO), container("a"))
    larger = step(node, ev.ContainerResized("a", Sizes(cpu_milli=500, cpu_limit_milli=2000)), policy())
    assert quota(larger) is LIFTED
    assert not any("CFS quota" in text for text in larger.sentences)
    without = step(larger.node, ev.ContainerResized("a", Sizes(cpu_milli=500)), policy())
    assert quota(without) is LEFT
    again = step(without.node, ev.ContainerResized("a", Sizes(cpu_milli=500, cpu_limit_milli=500)), policy())
    assert quota(again) is LIFTED

    creating = step(Node(TWO), ev.ContainerCreating(container("a")), policy()).node
    repeated = step(creating, ev.ContainerCreating(replace(container("a"), key="r-2", reservation="r-2")), policy())
    assert repeated.grant
    assert repeated.grant.quota is LIFTED


def test_a_create_that_was_sent_before_is_corrected_when_it_is_answered() -> None:
    """Its message had no quota, and the last idle CPU was taken since then."""
    node = step(created(Node(ONE), owner("first")), ev.ContainerCreating(container("a")), policy()).node
    node = created(node, owner("last"))
    assert node.applied["r-a"].lifted
    answered = step(node, ev.ContainerCreated("r-a", "a"), policy())
    assert (quota(answered), [each.key for each in answered.updates]) == (RESTORED, ["a"])
    assert not in_place(answered.node.grants["a"], answered.node.applied["a"])


def test_a_create_that_is_repeated_may_have_been_sent_without_a_quota() -> None:
    """The first message had one, the second had none, and no CPU has been idle since then."""
    node = created(Node(ONE), container("b", 2000))
    node = step(node, ev.ContainerCreating(container("a")), policy()).node
    assert not node.applied["r-a"].lifted
    node = step(node, ev.ContainerGone("b"), policy()).node
    again = ev.ContainerCreating(replace(container("a"), key="r-2", reservation="r-2"))
    node = created(step(node, again, policy()).node, container("c", 2000))
    answered = step(node, ev.ContainerCreated("r-a", "a"), policy())
    assert (quota(answered), [each.key for each in answered.updates]) == (RESTORED, ["a"])


@pytest.mark.parametrize("everything", [False, True])
def test_a_new_policy_file_counts_at_once(everything: bool) -> None:
    """With the class and without it; so does the policy none."""
    node = created(Node(TWO), container("a"))
    gone = step(node, ev.PolicyChanged(everything, "other"), policy(""))
    assert (quota(gone), [each.key for each in gone.updates]) == (RESTORED, ["a"])
    assert causes(ev.PolicyChanged(), node, gone)["a"].startswith("no class of web/a has burst: idle any more")
    back = step(gone.node, ev.PolicyChanged(everything, "third"), policy())
    assert (quota(back), [each.key for each in back.updates]) == (LIFTED, ["a"])
    same = step(node, ev.PolicyChanged(everything, "fourth"), policy(more="pinMemory: false\n"))
    assert quota(same) is LIFTED
    assert not any("CFS quota" in text for text in same.sentences)
    none = step(node, ev.PolicyChanged(everything, "none"), NonePolicy(options_of(policy())))
    assert quota(none) is RESTORED


def test_a_release_restores_it_and_its_end_lifts_it_again() -> None:
    """Nothing is lifted on a released node."""
    node = created(Node(TWO), container("a"))
    free = step(node, ev.Released("asked"), policy()).node
    assert quota(free) is RESTORED
    free = step(free, ev.UpdateApplied("a", Applied(TWO.cpus, TWO.mems)), policy()).node
    assert "a" not in free.grants
    assert quota(step(free, ev.PolicyChanged(apply_all=True), policy())) is LIFTED


def test_while_the_policy_is_not_asked_the_quota_still_comes_back() -> None:
    """An automatic bypass places newcomers on shared CPUs: their requests take the idle ones; they have no class."""
    node, fallback = created(Node(TWO), container("a")), Fallback(options_of(policy()))
    node = created(node, container("b", 6900, 7000), fallback)
    assert (quota(node), quota(node, "b")) == (RESTORED, LEFT)
    assert quota(step(node, ev.ContainerGone("b"), fallback)) is LIFTED


@pytest.mark.parametrize("has_quota", [False, True])
def test_who_is_found_goes_on_without_a_quota(has_quota: bool) -> None:
    """After the store was lost; nothing is to be updated if it has none already."""
    there = replace(container("a"), key="a", state=ContainerState.RUNNING)
    has = Applied(parse_cpuset("1-3"), TWO.mems, lifted=not has_quota)
    decision = step(Node(TWO), ev.Found(containers=(ev.Present(there, has),)), policy())
    assert quota(decision) is LIFTED
    assert in_place(decision.node.grants["a"], decision.node.applied["a"]) is not has_quota


def test_cpus_that_go_offline_are_not_idle() -> None:
    """And come back."""
    node = created(Node(ONE), container("a"))
    gone = step(node, ev.TopologyChanged(machine(nodes=1, cores=4, threads=1, allowed=parse_cpuset("0-1"))), policy())
    assert quota(gone) is RESTORED
    assert quota(step(gone.node, ev.TopologyChanged(ONE), policy())) is LIFTED


def test_reserved_cpus_are_not_idle() -> None:
    """Who runs only there finds no idle CPU, however many others are."""
    system = replace(container("a"), namespace="kube-system")
    assert quota(step(Node(TWO), ev.ContainerCreating(system), policy()), "r-a") is LEFT


def test_the_annotation_that_lifts_a_quota_has_a_reason_and_stays_in_force() -> None:
    """Classes are known before anybody says what becomes of the quota."""
    under, key = policy(CLASS, more=ALLOW), "cpu-quota.crio.io"
    node = Node(TWO, pods={"p-a": Pod(key="p-a", annotations={key: "disable"})})
    placed = step(node, ev.ContainerCreating(owner("a")), under)
    lifted = next(text for text in placed.sentences if "CFS quota" in text)
    assert lifted.endswith("its CFS quota, 100000 of 100000 µs, is lifted")
    node = step(placed.node, ev.ContainerCreated("r-a", "a"), under).node
    again = step(node, ev.PolicyChanged(apply_all=True, configuration="other"), under)
    assert (quota(again), again.updates) == (LIFTED, ())
    assert not any("gets back" in text for text in again.sentences)


def test_a_question_before_a_create_has_the_same_answer() -> None:
    """`criproxy fit` places it on a copy of the node; so does the simulator, with the same steps."""
    node = created(created(Node(ONE), container("a")), owner("first"))
    pod = Pod(key="p-last", uid="p-last")
    found = fit(node, policy(), pod, owner("last"))
    assert isinstance(found.result, Decision)
    assert quota(found.result) is RESTORED
    assert quota(node) is LIFTED


FILES = {
    name: [policy(classes, name) for classes in (EVERYBODY, CLASS, "")]
    for name in ("static", "topology-aware", "balloons")
}


@st.composite
def lives(draw: st.DrawFn) -> tuple[Topology, list[tuple[ev.Event, Policy]]]:
    """A machine and what happens there, under one policy whose file changes, and which is not asked at times."""
    files, life = FILES[draw(st.sampled_from(sorted(FILES)))], list[tuple[ev.Event, Policy]]()
    under, used = files[0], set[str]()
    for event in draw(st.lists(st.one_of(events, events, events, found, released), max_size=30)):
        if isinstance(event, ev.ContainerCreating) and event.container.key in used:
            continue
        used |= reservations(event)
        if isinstance(event, ev.PolicyChanged):
            under = draw(st.sampled_from([*files, NonePolicy(options_of(files[0]))]))
        bypassed = draw(st.integers(0, 9)) == 0 and not isinstance(event, ev.PolicyChanged)
        life.append((event, Fallback(options_of(under)) if bypassed else under))
    return draw(machines()), life


@given(lives())
def test_it_is_lifted_if_and_only_if_a_cpu_is_idle(case: tuple[Topology, list[tuple[ev.Event, Policy]]]) -> None:
    """Whatever has happened; and what is updated is exactly what has changed."""
    topology, life = case
    node = Node(topology)
    for event, under in life:
        try:
            decision = step(node, event, under)
        except Refused:
            continue
        before, node = node, decision.node
        told = [each.key for each in decision.updates]
        assert len(told) == len(set(told))
        assert all(each.grant is node.grants[each.key] for each in decision.updates)
        if not isinstance(event, ev.ContainerCreated | ev.Found | ev.Released) and not before.released:
            changed = {key for key in node.grants.keys() & before.grants if node.grants[key] != before.grants[key]}
            assert {key for key in changed if node.containers[key].has_id} <= {*told}
        if node.released:
            assert not any(grant.quota is LIFTED for grant in node.grants.values())
            continue
        for key in node.grants:
            assert_as_booked(node, key, under)


def assert_as_booked(node: Node, key: str, under: Policy) -> None:
    """The quota of a container follows from what is booked, counted anew."""
    container, grant, reserved = node.containers[key], node.grants[key], options_of(under).reserved(node.topology)
    if container.asked_quota is None or (container.stays and container.has_id) or owns_all(grant):
        return
    classes = getattr(options_of(under), "classes", None) if not isinstance(under, NonePolicy) else None
    if classes is None or named_part(grant.controls.class_of("cpu")) != "batch":
        assert grant.quota is not LIFTED
        return
    anew = node.replace(topology=replace(node.topology), grants=dict(node.grants))  # nothing is remembered of it
    booked = booked_cpus(anew, reserved)
    isolated = node.topology.isolated_cpus
    mine = grant.cpus - reserved - node.exclusive_cpus - isolated
    idle = [
        each.available_milli - 1000 * len((isolated & each.cpus) - reserved - each.exclusive) >= 1000
        for each in booked.values()
        if each.cpus & mine
    ]
    assert (grant.quota is LIFTED) is any(idle)
