"""The kubelet's checkpoint: both formats, files that are none, and pods of one name."""

import json
from typing import Any

import pytest

from criproxy.devices.evidence.checkpoint import BadCheckpoint, Checkpoint, Ids, read_checkpoint

GPU = "nvidia.com/gpu"


def entry(ids: Any, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """An entry as the kubelet writes it."""
    known = {"PodUID": "u1", "ContainerName": "main", "ResourceName": GPU, "DeviceIDs": ids, "AllocResp": "CgA="}
    return known | changes


def written(*entries: Any, **more: Any) -> bytes:  # noqa: ANN401
    """A file with these entries."""
    data = {"PodDeviceEntries": list(entries), "RegisteredDevices": {GPU: ["GPU-a", "GPU-b"]}}
    return json.dumps({"Data": data, "Checksum": 3141592653, **more}).encode()


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([entry(["GPU-b", "GPU-a"])], ("GPU-b", "GPU-a"), id="list"),
        pytest.param([entry({"0": ["GPU-b"]})], ("GPU-b",), id="by-node"),
        pytest.param([entry({"10": ["c"], "2": ["b"], "-1": ["a"]})], ("a", "b", "c"), id="in-the-order-of-nodes"),
        pytest.param([entry({"0": ["a"], "some": ["b"]})], ("a", "b"), id="key-of-a-later-format"),
        pytest.param([entry({"0": ["a", "b"]}), entry({"1": ["b", "c"]})], ("a", "b", "c"), id="two-entries"),
        pytest.param([entry(["a"], Later=1)], ("a",), id="member-of-a-later-format"),
        pytest.param([entry({"0": None})], (), id="null-for-none"),
        pytest.param([entry(None)], (), id="null-for-all"),
    ],
)
def test_ids_of_a_container(entries: list[Any], expected: tuple[str, ...]) -> None:
    """They come as they stand, node by node, each once."""
    assert read_checkpoint(written(*entries, BootID="x", Later={})).of("u1", "main") == {GPU: expected}


def test_nodes_next_to_cards() -> None:
    """As the device plugin told the kubelet; a card that is next to two stands in both lists."""
    by_node = entry({"0": ["a", "b"], "1": ["b"], "-1": ["c"], "some": ["d"], "99999999": ["e"], "2": None})

    assert read_checkpoint(written(by_node, entry(["f"]))).near == {"a": frozenset({0}), "b": frozenset({0, 1})}


def test_containers_and_resources_are_kept_apart() -> None:
    """By the pod's UID, the container's name and the resource."""
    others = entry(["b"], PodUID="u2"), entry(["c"], ContainerName="other"), entry(["d"], ResourceName="vendor.com/nic")
    file = written(entry(["a"]), *others)

    assert read_checkpoint(file) == Checkpoint(
        {
            ("u1", "main"): {GPU: ("a",), "vendor.com/nic": ("d",)},
            ("u2", "main"): {GPU: ("b",)},
            ("u1", "other"): {GPU: ("c",)},
        }
    )
    assert not read_checkpoint(file).of("u3", "main")
    assert read_checkpoint(b'{"Data":{"PodDeviceEntries":null},"Checksum":0}') == Checkpoint()


@pytest.mark.parametrize(
    ("data", "mistake"),
    [
        pytest.param(b"", "not valid JSON: Expecting value", id="empty"),
        pytest.param(written(entry(["a"]))[:-20], "not valid JSON", id="cut"),
        pytest.param(b"\xff\x00", "not valid JSON", id="no-text"),
        pytest.param(b"[" * 100_000, "not valid JSON", id="deep"),
        pytest.param(b"[]", "the file: must be an object, not list", id="list"),
        pytest.param(b"{}", "Data: must be an object, not NoneType", id="nothing"),
        pytest.param(b'{"Data":{}}', "Data: has no PodDeviceEntries", id="no-entries"),
        pytest.param(b'{"Data":{"PodDeviceEntries":{}}}', "PodDeviceEntries: must be a list, not dict", id="entries"),
        pytest.param(written(7), r"Data.PodDeviceEntries\[0\]: must be an object, not int", id="entry"),
        pytest.param(
            written(entry(["a"]), entry(["a"], PodUID=None)),
            r"Data.PodDeviceEntries\[1\].PodUID: must be a string, not NoneType",
            id="no-uid",
        ),
        pytest.param(written(entry("GPU-a")), r"\[0\].DeviceIDs: must be a list, not str", id="ids"),
        pytest.param(written(entry({"0": [1]})), r"\[0\].DeviceIDs: must be a string, not int", id="id"),
    ],
)
def test_what_is_no_checkpoint(data: bytes, mistake: str) -> None:
    """It is refused as a whole, and the text says where and why: half a file would tell of containers without cards."""
    with pytest.raises(BadCheckpoint, match=mistake):
        read_checkpoint(data)


BOTH = Checkpoint({("u1", "main"): {GPU: ("GPU-a",)}, ("u2", "main"): {GPU: ("GPU-b", "GPU-c")}})


@pytest.mark.parametrize(
    ("pod_uid", "told", "belied", "belied_by_an_old_one"),
    [
        pytest.param("u1", {GPU: ("GPU-a",)}, False, False, id="agrees"),
        pytest.param("u2", {GPU: ("GPU-c", "GPU-b")}, False, False, id="in-another-order"),
        pytest.param("u1", {GPU: ("GPU-a",), "vendor.com/nic": ()}, False, False, id="nothing-of-another"),
        pytest.param("u1", {GPU: ("GPU-b",)}, True, True, id="other-card"),
        pytest.param("u1", {}, True, True, id="none-though-it-has-one"),
        pytest.param("u3", {GPU: ("GPU-a",)}, True, False, id="card-of-another-pod"),
        pytest.param("u3", {}, False, False, id="none"),
        pytest.param("u3", {GPU: ("GPU-z",)}, False, False, id="card-of-nobody"),
    ],
)
def test_what_is_told_of_another_pod_of_that_name(
    pod_uid: str, told: Ids, belied: bool, belied_by_an_old_one: bool
) -> None:
    """A pod has what stands under its UID; cards of other pods are not its own, as far as that is known now."""
    assert BOTH.contradicts(pod_uid, "main", told, current=True) is belied
    assert BOTH.contradicts(pod_uid, "main", told, current=False) is belied_by_an_old_one
