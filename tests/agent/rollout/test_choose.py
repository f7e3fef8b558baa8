"""Which NodePolicy is for a node, and what its status says."""

from typing import Any

import pytest

from criproxy.agent.objects.node_policy import MAX_FAILURES, NodePolicy, NodeSelector
from criproxy.agent.rollout.choose import choose, failure_on, is_recorded, why_stopped, with_failure
from criproxy.agent.rollout.slots import CANDIDATES, lease_names
from lab.apiserver.selectors import matcher

GPU = {"matchLabels": {"pool": "gpu"}}


def policy_of(name: str, priority: int = 0, selector: Any = None, **status: Any) -> dict[str, Any]:  # noqa: ANN401
    """A NodePolicy of generation 3."""
    spec = {"nodeSelector": selector or {}, "priority": priority, "policy": {"policy": "static"}}
    return {"metadata": {"name": name, "uid": f"u-{name}", "generation": 3}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("objects", "chosen", "passed_over"),
    [
        pytest.param([], None, (), id="none"),
        pytest.param([policy_of("a", selector={"matchLabels": {"pool": "cpu"}})], None, (), id="none selects it"),
        pytest.param([policy_of("a"), policy_of("b", 5)], "b", ("a",), id="priority"),
        pytest.param([policy_of("b"), policy_of("a", -1, GPU)], "b", ("a",), id="negative priority"),
        pytest.param([policy_of("b"), policy_of("a")], "a", ("b",), id="name"),
        pytest.param([policy_of("a", 9, {"matchLabels": {"pool": "cpu"}}), policy_of("b")], "b", (), id="not selected"),
    ],
)
def test_the_highest_priority_counts(objects: Any, chosen: str | None, passed_over: tuple[str, ...]) -> None:  # noqa: ANN401
    """Of those that select the node; of equal ones, the first by name; the others are named."""
    choice = choose(objects, {"pool": "gpu"})
    assert (choice.policy.name if choice.policy else None, choice.passed_over) == (chosen, passed_over)
    assert choice.names == {each["metadata"]["name"] for each in objects}
    assert all(name in choice.why for name in passed_over)


def test_an_object_of_a_newer_version_selects_nothing_and_is_named() -> None:
    """An option that this version does not know may change everything."""
    unknown = policy_of("new")
    unknown["spec"]["rollout"] = {"canary": True}
    choice = choose([unknown, policy_of("a")], {})
    assert choice.policy is not None
    assert choice.policy.name == "a"
    assert "canary" in choice.mistakes[0]
    assert choice.unreadable == {"new"}
    assert "canary" in choice.why
    assert choose([unknown], {}).policy is None


def failure(node: str, policy: NodePolicy, generation: int = 3) -> dict[str, Any]:
    """As in a status."""
    return {"node": node, "generation": generation, "hash": policy.hash, "at": "", "text": "why"}


def test_only_failures_of_the_present_spec_count() -> None:
    """Those of an earlier generation do not, although its content was the same."""
    policy = NodePolicy.read(policy_of("a"))
    before = NodePolicy.read(policy_of("a", failures=[failure("n1", policy, 2)]))
    assert (why_stopped(before), failure_on(before, "n1"), is_recorded(before, "n1")) == ("", "", False)
    now = NodePolicy.read(policy_of("a", failures=[failure("n1", policy)]))
    assert why_stopped(now) == "the rollout has stopped (1 failure, stopAfterFailures: 1); n1: why"
    assert (failure_on(now, "n1"), is_recorded(now, "n2")) == ("why", False)


def test_the_list_of_failures_is_bounded() -> None:
    """Earlier ones go first; when it is full of present ones, no further one has to be recorded."""
    policy = NodePolicy.read(policy_of("a"))
    old = [failure(f"old-{number}", policy, 2) for number in range(15)]
    found = policy_of("a", failures=old)
    for number in range(MAX_FAILURES):
        now = NodePolicy.read(found)
        assert not is_recorded(now, "another")
        status = with_failure(now, f"n{number}", "text " * 200, "2026-11-30T00:00:00Z")
        assert len(status.failures) <= MAX_FAILURES
        assert len(status.failures[-1].text) < 350
        found = policy_of("a", **status.as_object())
    full = NodePolicy.read(found)
    assert is_recorded(full, "another")
    assert {each.node for each in full.status.failures} == {f"n{number}" for number in range(MAX_FAILURES)}


def test_a_selector_in_a_query_selects_the_same_nodes() -> None:
    """Nodes are counted by the API server, which must mean the same."""
    expressions = [
        {"key": "a", "operator": "In", "values": ["1", "2"]},
        {"key": "b", "operator": "NotIn", "values": ["x"]},
        {"key": "c", "operator": "Exists"},
        {"key": "d", "operator": "DoesNotExist"},
    ]
    selector = NodeSelector.model_validate({"matchLabels": {"e": "5"}, "matchExpressions": expressions})
    fits = matcher(selector.query(), "")
    right = {"a": "2", "b": "y", "c": "", "e": "5"}
    wrong = [{"a": "3"}, {"b": "x"}, {"d": ""}, {"e": "6"}]
    without = {key: value for key, value in right.items() if key != "c"}
    for labels in (right, *({**right, **each} for each in wrong), without):
        assert fits({"metadata": {"labels": labels}}) == selector.matches(labels)
    assert NodeSelector().query() == ""


def test_nodes_are_spread_over_the_turns() -> None:
    """Of few turns a node looks at all, of many at four; every turn is seen by some nodes; names are short enough."""

    def names(slots: int, node: str, name: str = "a") -> tuple[str, ...]:
        rollout = {"generation": 3, "hash": "", "nodes": 1000, "slots": slots}
        return lease_names(NodePolicy.read(policy_of(name, rollout=rollout)), node)

    assert names(3, "n") == tuple(f"criproxy-rollout-a-{number}" for number in range(3))
    looked = [names(100, f"n{number}") for number in range(1000)]
    assert all(1 <= len(each) <= CANDIDATES for each in looked)
    assert len({name for each in looked for name in each}) == 100
    assert all(len(each) <= 253 for each in names(100, "n", "x" * 253))
