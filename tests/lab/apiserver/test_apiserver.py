"""The small API server does what Kubernetes' own does, as far as tests of the agent depend on it."""

from collections.abc import Callable
from typing import Any

import pytest

from criproxy.agent.kubernetes.client import LEASES, NODE_POLICIES, NODES
from lab.apiserver.fields import merged
from lab.apiserver.objects import Event, Objects, Refusal
from lab.apiserver.selectors import matcher, only_name


@pytest.fixture
def objects() -> Objects:
    """Without any object; what happens is in its `events`."""
    return Objects(lambda _: None)


PATCHES = [
    pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}, id="null removes"),
    pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists are replaced"),
    pytest.param({"a": 1}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}, id="what is no map becomes one"),
]


@pytest.mark.parametrize(("base", "patch", "found"), PATCHES)
def test_merge_patches(base: dict[str, Any], patch: dict[str, Any], found: dict[str, Any]) -> None:
    """As RFC 7386 has them."""
    assert merged(base, patch) == found


def test_who_manages_a_field(objects: Objects) -> None:
    """Whoever changes it last by force or by a plain write; equal values are shared."""
    config = {"metadata": {"name": "p"}, "spec": {"priority": 1}}
    objects.apply(NODE_POLICIES, config, manager="one")
    objects.apply(NODE_POLICIES, config, manager="two")
    objects.update(NODE_POLICIES, "p", "", lambda old: merged(old, {"spec": {"priority": 2}}), manager="kubectl-edit")
    with pytest.raises(Refusal, match=r'1 conflicts: conflict with "kubectl-edit": \.spec\.priority'):
        objects.apply(NODE_POLICIES, config, manager="one")
    found = objects.apply(NODE_POLICIES, config, manager="one", force=True)
    assert [each["manager"] for each in found["metadata"]["managedFields"]] == ["one"]
    assert found["metadata"]["managedFields"][0]["fieldsV1"] == {"f:spec": {"f:priority": {}}}


def test_an_empty_text_is_a_value(objects: Objects) -> None:
    """As in Kubernetes, where only null removes a field."""
    config = {"metadata": {"name": "p"}, "spec": {"note": ""}}

    assert objects.apply(NODE_POLICIES, config, manager="one")["spec"] == {"note": ""}


def test_versions_and_generations(objects: Objects) -> None:
    """Each change has a version; only one of the spec is a new generation, and one without effect is none."""
    made = objects.create(NODE_POLICIES, {"metadata": {"name": "p"}, "spec": {"priority": 1}, "status": {"lost": 1}})
    assert "status" not in made
    status = objects.update(
        NODE_POLICIES, "p", "", lambda old: old | {"status": {"stopped": True}}, subresource="status"
    )
    same = objects.update(NODE_POLICIES, "p", "", lambda old: old | {"status": {}})
    spec = objects.update(NODE_POLICIES, "p", "", lambda old: old | {"spec": {"priority": 2}})
    assert [each["metadata"]["generation"] for each in (made, status, same, spec)] == [1, 1, 1, 2]
    assert same is status
    assert spec["status"] == {"stopped": True}
    assert [each.kind for each in objects.events] == ["ADDED", "MODIFIED", "MODIFIED"]
    versions = [int(each["metadata"]["resourceVersion"]) for each in (made, status, spec)]
    assert versions == sorted(set(versions))


def test_an_old_version_is_refused(objects: Objects) -> None:
    """As is an object that is not there, or there already."""
    objects.create(LEASES, {"metadata": {"name": "l", "namespace": "n"}})
    stale = {"metadata": {"name": "l", "namespace": "n", "resourceVersion": "1"}}
    attempts: list[tuple[Callable[[], object], int]] = [
        (lambda: objects.update(LEASES, "l", "n", lambda _: stale), 409),
        (lambda: objects.create(LEASES, stale), 400),
        (lambda: objects.create(LEASES, {"metadata": {"name": "l", "namespace": "n"}}), 409),
        (lambda: objects.apply(LEASES, stale, manager="m"), 409),
        (lambda: objects.apply(LEASES, {"metadata": {"name": "x", "managedFields": [1]}}, manager="m"), 400),
        (lambda: objects.apply(LEASES, {"metadata": {"name": "x"}}, manager="m", subresource="status"), 404),
        (lambda: objects.get(LEASES, "l", "other"), 404),
        (lambda: objects.delete(LEASES, "x", "n"), 404),
        (lambda: objects.delete(LEASES, "l", "n", uid="x"), 409),
        (lambda: objects.create(LEASES, {"metadata": {}}), 422),
    ]
    for attempt, code in attempts:
        with pytest.raises(Refusal) as raised:
            attempt()
        assert raised.value.code == code


def test_what_happens_is_told() -> None:
    """With what was before, and a version for a deletion, too."""
    told: list[Event] = []
    objects = Objects(told.append)
    objects.create(NODES, {"metadata": {"name": "n"}})
    objects.wipe()
    assert [(each.kind, each.version) for each in told] == [("ADDED", 1001), ("DELETED", 1002)]
    assert told[1].obj["metadata"]["resourceVersion"] == "1002"
    assert objects.all(NODES) == []


SELECTORS = [
    pytest.param("a=b,c", "", True, id="equal, and there"),
    pytest.param("a in (z, b),!x", "", True, id="in, and not there"),
    pytest.param("a notin (b)", "", False, id="not in"),
    pytest.param("", "spec.nodeName=n1,metadata.name=p", True, id="fields"),
    pytest.param("", "spec.nodeName=n2", False, id="another value of a field"),
]


@pytest.mark.parametrize(("labels", "fields", "fits"), SELECTORS)
def test_selectors(labels: str, fields: str, fits: bool) -> None:
    """Of labels, and of fields."""
    pod = {"metadata": {"name": "p", "labels": {"a": "b", "c": ""}}, "spec": {"nodeName": "n1"}}
    assert matcher(labels, fields)(pod) is fits


def test_a_selector_of_one_object() -> None:
    """It is found by its name, so that an event is not compared with all watches."""
    assert [only_name(each) for each in ("metadata.name=n", "spec.nodeName=n", "")] == ["n", "", ""]
