"""A policy that is not ours cannot break a node."""

from dataclasses import replace

import pytest

from criproxy.errors import NotEnough
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Change, Grant, Reason
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, QosClass
from criproxy.placement.checked_policy import CheckedPolicy, PolicyFault
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerGone, ContainerStarted, Found, Present
from criproxy.placement.invariants import violations
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import machine

MEMS = frozenset({0})
ALL = frozenset(range(8))
OWN = parse_cpuset("2")
EMPTY = Node(machine(cores=8, threads=1))
NODE = EMPTY.replace(
    containers={key: Container(key=key, pod="s", name=key) for key in ("own", "share")},
    grants={"own": Grant(OWN, MEMS, OWN), "share": Grant(ALL - OWN, MEMS)},
)
RESERVING = Options.model_validate({"reservedCpus": 0})
NEWCOMER = Container(key="new", pod="s", name="new")


class Scripted:
    """Answers with the grants it was given, or fails."""

    def __init__(self, grants: dict[str, Grant] | Exception) -> None:
        self.grants = grants

    def place(self, node: Node, container: Container) -> Change:
        """The script."""
        if isinstance(self.grants, Exception):
            raise self.grants
        return Change(self.grants, ("because",))

    def release(self, node: Node, left: Grant) -> Change:
        """The script."""
        return self.place(node, node.containers["share"])


def guarded(grants: dict[str, Grant] | Exception) -> CheckedPolicy:
    """A guard around such a policy; CPU 0 is reserved."""
    return CheckedPolicy(Scripted(grants), "acme", RESERVING)


def test_a_good_layout_passes() -> None:
    """With its reasons: a plain sentence is about the new container."""
    grants = {**NODE.grants, "new": Grant(ALL - OWN, MEMS)}
    guard = guarded(grants)

    decision = step(NODE, ContainerCreating(NEWCOMER), guard)

    assert decision.node.grants == grants
    assert decision.reasons == (Reason("new", "because"),)
    assert decision.faults == ()


@pytest.mark.parametrize(
    ("grants", "sentence"),
    [
        pytest.param(
            {**NODE.grants, "new": Grant(OWN, MEMS, OWN)}, "CPU 2 is exclusive to both own and new", id="two-owners"
        ),
        pytest.param({**NODE.grants, "new": Grant(frozenset(), MEMS)}, "new has no CPU", id="no-cpu"),
        pytest.param(
            {**NODE.grants, "new": Grant(parse_cpuset("0"), MEMS, parse_cpuset("0"))}, "reserved CPU 0", id="reserved"
        ),
        pytest.param({"gone": Grant(ALL - OWN, MEMS)}, "unknown container gone has a place", id="of-no-container"),
    ],
)
def test_a_bad_layout_is_refused(grants: dict[str, Grant], sentence: str) -> None:
    """The error names the policy and what it broke."""
    with pytest.raises(PolicyFault, match=f"new cannot be placed: the policy 'acme' is faulty: .*{sentence}"):
        step(NODE, ContainerCreating(NEWCOMER), guarded(grants))


def test_many_violations_are_told_in_few_words() -> None:
    """The status of a call has little room."""
    bad = {key: Grant(frozenset(), MEMS) for key in [*NODE.grants, "new", *(f"x{i}" for i in range(9))]}

    with pytest.raises(PolicyFault, match=r"own has no CPU; share has no CPU; .* and \d+ more"):
        step(NODE, ContainerCreating(NEWCOMER), guarded(bad))


def test_what_was_wrong_before_is_not_the_policys_fault() -> None:
    """An owner of CPUs that became reserved later does not keep newcomers away."""
    own = parse_cpuset("0")
    node = NODE.replace(grants={"own": Grant(own, MEMS, own), "share": Grant(ALL - own, MEMS)})
    assert violations(node, frozenset({0}))

    grants = {**node.grants, "new": Grant(ALL - own, MEMS)}

    assert step(node, ContainerCreating(NEWCOMER), guarded(grants)).node.grants == grants


@pytest.mark.parametrize("error", [NotEnough("too big"), ZeroDivisionError("oops")], ids=["refusal", "raises"])
def test_errors_of_a_placement_pass(error: Exception) -> None:
    """A refusal is one, and what to do about a crash is decided by onError."""
    with pytest.raises(type(error), match=str(error)):
        step(NODE, ContainerCreating(NEWCOMER), guarded(error))


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(ZeroDivisionError("oops"), id="raises"),
        pytest.param(dict(NODE.grants), id="leaks"),
        pytest.param({"share": Grant(frozenset(), MEMS)}, id="no-cpu"),
    ],
)
def test_a_release_is_always_possible(answer: dict[str, Grant] | Exception) -> None:
    """The container has gone: its place is free whatever the policy says, and nobody else moves."""
    decision = step(NODE, ContainerGone("own"), guarded(answer))

    assert decision.node.grants == {"share": NODE.grants["share"]}
    assert "the policy 'acme' is faulty" in decision.sentences[0]
    assert decision.faults == decision.sentences[:1]


def test_a_fault_is_of_the_step_in_which_it_happened() -> None:
    """Of an answer of which the decision has no reason, too; and the same step has the same decision once more."""
    guard = guarded({**NODE.grants, "new": Grant(frozenset(), MEMS)})
    found = Found(containers=(Present(replace(NEWCOMER, state=ContainerState.RUNNING, reservation="r")),))

    first = step(NODE, found, guard)

    assert first.faults
    assert all("the policy 'acme' is faulty" in text for text in first.faults)
    assert step(NODE, found, guard) == first
    assert step(NODE, ContainerStarted("own"), guard).faults == ()


def test_what_a_policy_chose_from_is_passed_on() -> None:
    """Where it shows that; the policy sees no more of the machine than when it decides."""
    options = TopologyAwareOptions.model_validate({"availableResources": {"cpu": "cpuset:0-3"}})
    newcomer = Container(key="new", pod="s", name="new", qos=QosClass.BURSTABLE, cpu_milli=9000)
    shown = CheckedPolicy(TopologyAwarePolicy(options), "acme", options).candidates(EMPTY, newcomer)

    assert shown
    assert [row.lacks for row in shown.rows] == ["5000m"]
    assert guarded({}).candidates(EMPTY, newcomer) is None
