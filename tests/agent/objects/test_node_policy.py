"""NodePolicy: reading objects, selectors, and the policy file that they become."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from criproxy.agent.objects.node_policy import NodePolicy, Rollout, Spec, text_of
from criproxy.config.document import parse
from criproxy.errors import ConfigError
from criproxy.model.text.sources import hash_of

POLICIES = sorted(Path("policies").glob("*.yaml"))


def _object(**spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "criproxy.io/v1alpha1",
        "kind": "NodePolicy",
        "metadata": {"name": "gpu", "uid": "u-1", "generation": 3, "resourceVersion": "17"},
        "spec": {"nodeSelector": {}, "policy": {"policy": "static"}, **spec},
    }


def test_defaults() -> None:
    """What a user leaves out is careful: one node at a time, ten minutes, and one failure ends it."""
    policy = NodePolicy.read(_object())
    assert (policy.name, policy.uid, policy.generation, policy.resource_version) == ("gpu", "u-1", 3, "17")
    assert (policy.spec.priority, policy.spec.rollout) == (0, Rollout())
    assert (policy.spec.rollout.try_s, policy.spec.rollout.at_once, policy.spec.rollout.stop_after_failures) == (
        600,
        1,
        1,
    )
    assert policy.status.failures == []


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        pytest.param({}, {}, True, id="everything"),
        pytest.param({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True, id="label"),
        pytest.param({"matchLabels": {"a": "1"}}, {"a": "2"}, False, id="other-value"),
        pytest.param({"matchLabels": {"a": "1", "b": "2"}}, {"a": "1"}, False, id="one-of-two"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, {"a": "2"}, True, id="in"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, {}, False, id="in-absent"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True, id="notin-absent"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {"a": "1"}, False, id="notin"
        ),
        pytest.param({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True, id="exists"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False, id="does-not-exist"
        ),
        pytest.param(
            {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]},
            {"a": "1"},
            False,
            id="both",
        ),
    ],
)
def test_selector(selector: dict[str, Any], labels: dict[str, str], selected: bool) -> None:
    """A selector means what a LabelSelector of Kubernetes means."""
    assert NodePolicy.read(_object(nodeSelector=selector)).spec.node_selector.matches(labels) is selected


@pytest.mark.parametrize(
    ("at_once", "nodes", "slots"),
    [(1, 100, 1), (7, 3, 7), ("10%", 100, 10), ("10 %", 19, 1), ("10%", 3, 1), ("100%", 20, 20), ("33%", 10, 3)],
)
def test_slots(at_once: int | str, nodes: int, slots: int) -> None:
    """A share of the nodes is rounded down, but somebody has to begin."""
    assert Rollout.model_validate({"atOnce": at_once}).slots(nodes) == slots


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"nodeSelector": {"matchLabels": {"a b": "1"}}}, "must be the key of a label such as pool"),
        ({"nodeSelector": {"matchLabels": {"a": "ä"}}}, "spec.nodeSelector.matchLabels.a must be the value of a label"),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "spec.nodeSelector.matchExpressions[0] In must have values",
        ),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]}},
            "spec.nodeSelector.matchExpressions[0] Exists must have no values",
        ),
        ({"nodeSelector": None}, "spec.nodeSelector has no value"),
        ({"nodeSelektor": {}}, "spec.nodeSelektor is unknown to criproxy"),
        ({"priority": "high"}, "spec.priority must be a whole number, not 'high'"),
        ({"policy": []}, "spec.policy must be a group of options"),
        ({"rollout": {"try": "10d"}}, "spec.rollout.try '10d' must be a duration such as 30s, 10m or 168h"),
        ({"rollout": {"try": "200h"}}, "spec.rollout.try must be a time from 1s to 168h, not 200h"),
        (
            {"rollout": {"try": 10}},
            "spec.rollout.try must be a time such as 30s, 10m or 168h, not 10; did you mean 10m?",
        ),
        ({"rollout": {"atOnce": 0}}, "spec.rollout.atOnce must be a number of nodes from 1, or a share"),
        ({"rollout": {"atOnce": "0%"}}, "not '0%'"),
        ({"rollout": {"atOnce": True}}, "not true"),
        ({"rollout": {"window": "02:00"}}, "spec.rollout.window is unknown to criproxy"),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}},
            "spec.nodeSelector.matchExpressions[0].operator",
        ),
    ],
)
def test_what_cannot_be_used_is_said_with_its_place(spec: dict[str, Any], said: str) -> None:
    """An object of a newer version, or one that the API server did not check, is not half understood."""
    with pytest.raises(ConfigError, match=r"^NodePolicy gpu: ") as caught:
        NodePolicy.read(_object(**spec))
    assert said in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_status_of_a_newer_agent_is_read() -> None:
    """Agents of two versions write one status: what this one does not know is left alone."""
    failure = {
        "node": "n1",
        "generation": 3,
        "hash": "0123456789ab",
        "at": "2026-01-02T03:04:05Z",
        "text": "no",
        "new": 1,
    }
    policy = NodePolicy.read(_object() | {"status": {"failures": [failure], "stopped": True, "later": {}}})
    assert policy.status.stopped
    assert policy.status.as_object()["failures"][0].keys() == failure.keys() - {"new"}


@pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.stem)
def test_the_text_of_an_example_says_the_same_as_the_file(file: Path) -> None:
    """What comes through the API server is the same policy."""
    content = yaml.safe_load(file.read_text())
    document = parse(text_of(content))
    assert (document.data, document.mistakes) == (parse(file.read_text()).data, [])
    assert Spec.model_validate({"nodeSelector": {}, "policy": content}).policy == content


def test_the_order_of_keys_does_not_change_the_hash() -> None:
    """API servers and clients sort keys as they like."""
    assert hash_of(text_of({"a": 1, "b": {"c": 2, "d": 3}})) == hash_of(text_of({"b": {"d": 3, "c": 2}, "a": 1}))
    assert hash_of(text_of({"a": 1})) != hash_of(text_of({"a": 2}))
    assert hash_of("x\n") == "73cb3858a687"  # printf 'x\n' | sha256sum


_VALUES = st.recursive(
    st.booleans() | st.integers(-(10**9), 10**9) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abcXYZ-é.", min_size=1, max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), _VALUES, max_size=4))
def test_the_text_is_read_back_as_it_was(content: dict[str, Any]) -> None:
    """Whatever texts an object holds, the daemon's reader of policy files finds the same."""
    document = parse(text_of(content))
    assert (document.data, document.mistakes) == (content, [])


def test_half_of_a_character_is_refused_by_the_daemon_and_stops_nobody() -> None:
    """Such a text can be neither stored nor printed; it still has a hash, and a mistake with its place."""
    text = text_of({"policy": "\ud800"})
    assert len(hash_of(text)) == 12
    assert "is not a character" in parse(text).mistakes[0].text
