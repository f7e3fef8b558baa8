"""What the kubelet's device manager has written down: which ids each container was given, by the UID of its pod.

The file ``kubelet_internal_checkpoint`` is an internal format of the kubelet. Nothing is expected of it but what is
read here, and its checksum is of Go's own making and cannot be computed anew. Ids stand in a list (up to Kubernetes
1.19), or in lists by NUMA node, with -1 for none.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from re import fullmatch
from typing import TypeVar

from criproxy.model.cpuset import MAX_ID, CpuSet

T = TypeVar("T", dict, list, str)  # type: ignore[type-arg]
_WORDS = {dict: "an object", list: "a list", str: "a string"}

Ids = Mapping[str, tuple[str, ...]]
"""Ids as the device plugin named them, by resource."""


class BadCheckpoint(ValueError):
    """Bytes that are no such checkpoint; the text says where and what is wrong."""


@dataclass(frozen=True)
class Checkpoint:
    """What was allocated when the kubelet wrote it."""

    allocated: Mapping[tuple[str, str], Ids] = field(default_factory=dict)
    """By the pod's UID and the container's name."""
    near: Mapping[str, CpuSet] = field(default_factory=dict)
    """By id, the NUMA nodes next to it, as far as its device plugin reported them to the kubelet."""

    def of(self, pod_uid: str, container: str) -> Ids:
        """What a container was given; empty: nothing."""
        return self.allocated.get((pod_uid, container), {})

    def belies(self, pod_uid: str, container: str, told: Ids, *, current: bool) -> bool:
        """Whether an answer that names pods by name is about another pod, such as the former one of that name.

        Args:
            pod_uid: of the pod in question.
            container: its container.
            told: the ids in that answer.
            current: whether this is the latest checkpoint. Allocations of a pod stay; those of other pods may have
                changed since.
        """
        if own := self.of(pod_uid, container):
            return {name: set(ids) for name, ids in own.items()} != {
                name: set(ids) for name, ids in told.items() if ids
            }
        if not current:
            return False
        return any(self._owners.get((name, each), pod_uid) != pod_uid for name, ids in told.items() for each in ids)

    @cached_property
    def _owners(self) -> Mapping[tuple[str, str], str]:
        """UIDs of pods by resource and id."""
        return {
            (name, each): pod_uid
            for (pod_uid, _), resources in self.allocated.items()
            for name, ids in resources.items()
            for each in ids
        }


def read_checkpoint(data: bytes) -> Checkpoint:
    """The checkpoint in *data*, of the old or the new format; unknown keys are ignored.

    Raises:
        BadCheckpoint: it is none.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadCheckpoint(f"not valid JSON: {error}") from error
    told = _typed(dict, _typed(dict, document, "the file").get("Data"), "Data")
    if "PodDeviceEntries" not in told:  # the kubelet writes it even if there are none
        raise BadCheckpoint("Data: has no PodDeviceEntries")
    allocated: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
    near: dict[str, CpuSet] = {}
    for number, entry in enumerate(_typed(list, told["PodDeviceEntries"], "Data.PodDeviceEntries")):
        pod_uid, container, resource, ids = _entry(entry, f"Data.PodDeviceEntries[{number}]")
        resources = allocated.setdefault((pod_uid, container), {})
        resources[resource] = tuple(dict.fromkeys((*resources.get(resource, ()), *ids)))
        for each, node in _numa_nodes(_typed(dict, entry, "").get("DeviceIDs")):
            near[each] = near.get(each, frozenset()) | {node}
    return Checkpoint(allocated, near)


def _entry(entry: object, where: str) -> tuple[str, str, str, list[str]]:
    """UID of the pod, name of the container, resource, and ids."""
    members = _typed(dict, entry, where)
    pod_uid, container, resource = (
        _typed(str, members.get(key), f"{where}.{key}") for key in ("PodUID", "ContainerName", "ResourceName")
    )
    return pod_uid, container, resource, list(_ids(members.get("DeviceIDs"), f"{where}.DeviceIDs"))


def _ids(value: object, where: str) -> Iterator[str]:
    lists = [value[node] for node in sorted(value, key=_node)] if isinstance(value, dict) else [value]
    for ids in lists:
        for each in _typed(list, ids, where):
            yield _typed(str, each, where)


def _numa_nodes(value: object) -> Iterator[tuple[str, int]]:
    """Ids and a NUMA node next to each; one that is next to several stands in the list of each."""
    for key, ids in value.items() if isinstance(value, dict) else ():
        number, _ = _node(key)
        if 0 <= number <= MAX_ID:
            yield from ((each, number) for each in ids or ())


def _node(key: str) -> tuple[int, str]:
    """Where the ids of a NUMA node stand; keys that are no numbers come last."""
    return (int(key), "") if fullmatch("-?[0-9]{1,9}", key) else (1 << 31, key)


def _typed(kind: type[T], value: object, where: str) -> T:
    if value is None and kind is list:
        return kind()  # Go writes null for a list that has nothing in it
    if not isinstance(value, kind):
        raise BadCheckpoint(f"{where}: must be {_WORDS[kind]}, not {type(value).__name__}")
    return value
