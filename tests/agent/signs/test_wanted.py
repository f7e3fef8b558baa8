"""What a Node object should say, by what the daemon says."""

from dataclasses import replace
from typing import Any

import pytest

from criproxy.agent.signs.wanted import (
    ANNOTATION,
    MOST_MESSAGE_CHARS,
    WELL,
    Condition,
    Metadata,
    condition_of,
    known_condition,
    metadata_of,
    owned_by,
    without_taint,
)
from criproxy.api.views.devices import Inventory
from criproxy.devices.holdings import Holdings
from tests.agent.views import gpus, view_of

LABELS = {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.product": "Tesla-T4"}
PAST = "the kubelet does not go through criproxy: "


def with_labels(labels: dict[str, str] | None) -> Inventory:
    """Two GPUs, of which the device plugin reports these labels."""
    found = gpus()
    assert found.report is not None
    return replace(found, report=replace(found.report, labels=labels))


def node(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """A Node object with this metadata."""
    return {"metadata": {"name": "worker-1", "labels": labels or {}, "annotations": annotations or {}}}


def last_call(at: str | None) -> dict[str, Any]:
    """The calls of a kubelet that does not call any more."""
    return {"kubelet": {"last_call": at, "last_call_s": 90.0, "through": False}}


@pytest.mark.parametrize(
    ("others", "problem", "expected"),
    [
        pytest.param({}, "", WELL, id="well"),
        pytest.param({}, "no daemon", Condition("Unknown", "DaemonDoesNotAnswer", "no daemon"), id="no-daemon"),
        pytest.param(
            {"bypass": {"bypass": True, "mode": "ordered", "since": "01:00", "reason": "for a test"}},
            "",
            Condition("False", "Bypassed", "the bypass is on (ordered) since 01:00: for a test"),
            id="bypass",
        ),
        pytest.param(
            {"released": "an upgrade"},
            "",
            Condition("False", "Released", "the node is released, so no container is placed: an upgrade"),
            id="released",
        ),
        pytest.param(
            last_call("01:00"),
            "",
            Condition("False", "KubeletGoesPast", f"{PAST}its last call was at 01:00"),
            id="past",
        ),
        pytest.param(
            last_call(None),
            "",
            Condition("False", "KubeletGoesPast", f"{PAST}it has never called criproxy since criproxy started"),
            id="never",
        ),
        pytest.param({"ready": "the disk fails"}, "", Condition("False", "NotReady", "the disk fails"), id="not-ready"),
    ],
)
def test_the_condition(others: dict[str, Any], problem: str, expected: Condition) -> None:
    """The first of what is wrong, in words that say what it is."""
    assert condition_of(view_of(**others), problem) == expected


def test_a_condition_before_the_first_answer() -> None:
    """It is unknown, and never taken for well."""
    assert condition_of(None, "").status == "Unknown"


def test_a_condition_is_bounded() -> None:
    """However long a reason is."""
    assert len(condition_of(view_of(ready="x" * 100_000), "").message) < MOST_MESSAGE_CHARS + 50


def test_a_condition_that_is_known() -> None:
    """What was written is read back with the time of its change."""
    written = WELL.to_json("2026-11-30T01:00:00Z", "2026-11-30T02:00:00Z")
    other = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}

    assert known_condition({**node(), "status": {"conditions": [other, written]}}) == (WELL, "2026-11-30T01:00:00Z")
    assert known_condition({**node(), "status": {"conditions": [other]}}) is None
    assert known_condition(node()) is None


def test_the_taint() -> None:
    """Only ours goes, whatever its effect is."""
    ours = {"key": "criproxy.io/not-ready", "effect": "NoSchedule"}
    more = [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}, {"key": "gpu", "effect": "NoSchedule"}]

    assert without_taint([more[0], ours, {**ours, "effect": "NoExecute"}, more[1]]) == more
    assert without_taint(more) is None
    assert without_taint([ours]) == []


def test_the_inventory_and_the_labels() -> None:
    """What the device plugin reports, without labels of others."""
    empty = {"nvidia.com/cuda.driver-version.revision": ""}
    reported = {
        **LABELS,
        **empty,
        "nvidia.com/device-plugin.config": "x",
        "nvidia.com/gpu.deploy.driver": "y",
        "a.io/b": "z",
    }
    found = metadata_of(view_of(devices=with_labels(reported)), Metadata(), node(), labels=True)

    assert found.labels == LABELS
    assert '"resource":"nvidia.com/vgpu-g4","count":4,"free":4' in found.annotations[ANNOTATION]
    assert found.is_in(node({**LABELS, "more": "1"}, {**found.annotations}))
    assert not found.is_in(node({**LABELS, "nvidia.com/gpu.count": "3"}, {**found.annotations}))
    assert not found.is_in(node())


@pytest.mark.parametrize("answers", [True, False], ids=["no-report", "no-view"])
def test_what_is_unknown_stays(answers: bool) -> None:
    """A device plugin that is silent, or a daemon, does not take labels and inventory away."""
    owned = Metadata(LABELS, {ANNOTATION: "[]"})
    view = view_of(devices=Inventory(stocks={}, holdings=Holdings())) if answers else None

    assert metadata_of(view, owned, node(), labels=True) == owned


def test_an_older_device_plugin_does_not_take_labels_away() -> None:
    """It reports none, which says nothing about them."""
    owned = Metadata(LABELS, {})
    assert metadata_of(view_of(devices=with_labels(None)), owned, node(), labels=True).labels == LABELS


def test_a_device_plugin_that_somebody_has_ended_offers_nothing() -> None:
    """Then labels and inventory go."""
    ended = Inventory(stocks={}, holdings=Holdings(), ended=True)
    owned = Metadata(LABELS, {ANNOTATION: "[]"})

    assert metadata_of(view_of(devices=ended), owned, node(), labels=True) == Metadata()


@pytest.mark.parametrize(
    "there",
    [
        pytest.param(node(annotations={"nfd.node.kubernetes.io/feature-labels": ""}), id="annotation"),
        pytest.param(node({"feature.node.kubernetes.io/cpu-model.family": "6"}), id="label"),
    ],
)
def test_node_feature_discovery_writes_the_labels(there: dict[str, Any]) -> None:
    """Where it runs, it reads them from its file; the inventory is still ours."""
    found = metadata_of(view_of(devices=with_labels(LABELS)), Metadata(LABELS), there, labels=True)
    assert (found.labels, [*found.annotations]) == ({}, [ANNOTATION])


def test_labels_that_are_not_wanted() -> None:
    """With --no-labels those that were written go."""
    assert metadata_of(view_of(devices=with_labels(LABELS)), Metadata(LABELS), node(), labels=False).labels == {}


def test_what_we_have_applied_is_known_after_a_restart() -> None:
    """From the managed fields: not what others have, nor what we have patched."""
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {"f:nvidia.com/gpu.count": {}, "f:nvidia.com/gone": {}}}}
    there = node({"nvidia.com/gpu.count": "2", "nvidia.com/gpu.product": "x"})
    there["metadata"]["managedFields"] = [
        {"manager": "other", "operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": {"f:x": {}}}}},
        {"manager": "criproxy-agent", "operation": "Update", "fieldsV1": {"f:spec": {}}},
        {"manager": "criproxy-agent", "operation": "Apply", "fieldsV1": fields},
    ]

    assert owned_by(there, "criproxy-agent") == Metadata({"nvidia.com/gpu.count": "2"}, {})
    assert owned_by(node(), "criproxy-agent") is None
