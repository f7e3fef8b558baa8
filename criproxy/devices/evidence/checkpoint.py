"""Parses the checkpoint of the kubelet's device manager: the ids allocated to each container, by the UID of its pod.

The file ``kubelet_internal_checkpoint`` has an internal format of the kubelet. Nothing is expected of it except what is
read here, and its checksum depends on Go's internals and cannot be verified. Ids are in one list (up to Kubernetes
1.19), or in a list for each NUMA node, with -1 for none.
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
"""The device plugin's ids, by resource."""


class BadCheckpoint(ValueError):
    """The checkpoint is invalid; the text says what is wrong, and where."""


@dataclass(frozen=True)
class Checkpoint:
    """The allocations at the time when the kubelet wrote the file."""

    allocated: Mapping[tuple[str, str], Ids] = field(default_factory=dict)
    """By the UID of the pod and the name of the container."""
    near: Mapping[str, CpuSet] = field(default_factory=dict)
    """By id, the closest NUMA nodes, as far as the device plugin reported them to the kubelet."""

    def of(self, pod_uid: str, container: str) -> Ids:
        """Return the ids that are allocated to a container."""
        return self.allocated.get((pod_uid, container), {})

    def contradicts(self, pod_uid: str, container: str, reported: Ids, *, current: bool) -> bool:
        """Whether an answer that identifies pods by name is about another pod, such as a former one of that name.

        Args:
            pod_uid: the UID of the pod.
            container: the name of its container.
            reported: the ids in that answer.
            current: whether this is the latest checkpoint. The allocations of a pod never change; those of other pods
                may have changed since.
        """
        if own := self.of(pod_uid, container):
            told = {name: set(ids) for name, ids in reported.items() if ids}
            return {name: set(ids) for name, ids in own.items()} != told
        if not current:
            return False
        return any(self._owners.get((name, each), pod_uid) != pod_uid for name, ids in reported.items() for each in ids)

    @cached_property
    def _owners(self) -> Mapping[tuple[str, str], str]:
        """The UIDs of pods, by resource and id."""
        return {
            (name, each): pod_uid
            for (pod_uid, _), resources in self.allocated.items()
            for name, ids in resources.items()
            for each in ids
        }


def read_checkpoint(data: bytes) -> Checkpoint:
    """Parse the checkpoint in *data*, in the old or the new format; ignores unknown keys.

    Raises:
        BadCheckpoint: the checkpoint is invalid.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadCheckpoint(f"not valid JSON: {error}") from error
    content = _typed(dict, _typed(dict, document, "the file").get("Data"), "Data")
    if "PodDeviceEntries" not in content:  # the kubelet writes it even if there are none
        raise BadCheckpoint("Data: has no PodDeviceEntries")
    allocated: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
    near: dict[str, CpuSet] = {}
    for number, entry in enumerate(_typed(list, content["PodDeviceEntries"], "Data.PodDeviceEntries")):
        pod_uid, container, resource, ids = _entry(entry, f"Data.PodDeviceEntries[{number}]")
        resources = allocated.setdefault((pod_uid, container), {})
        resources[resource] = tuple(dict.fromkeys((*resources.get(resource, ()), *ids)))
        for each, node in _numa_nodes(_typed(dict, entry, "").get("DeviceIDs")):
            near[each] = near.get(each, frozenset()) | {node}
    return Checkpoint(allocated, near)


def _entry(entry: object, where: str) -> tuple[str, str, str, list[str]]:
    """Return the UID of the pod, the name of the container, the resource, and the ids."""
    members = _typed(dict, entry, where)
    keys = "PodUID", "ContainerName", "ResourceName"
    pod_uid, container, resource = (_typed(str, members.get(key), f"{where}.{key}") for key in keys)
    return pod_uid, container, resource, list(_ids(members.get("DeviceIDs"), f"{where}.DeviceIDs"))


def _ids(value: object, where: str) -> Iterator[str]:
    lists = [value[node] for node in sorted(value, key=_node)] if isinstance(value, dict) else [value]
    for ids in lists:
        for each in _typed(list, ids, where):
            yield _typed(str, each, where)


def _numa_nodes(value: object) -> Iterator[tuple[str, int]]:
    """Yield each id with each NUMA node in whose list it is."""
    for key, ids in value.items() if isinstance(value, dict) else ():
        number, _ = _node(key)
        if 0 <= number <= MAX_ID:
            yield from ((each, number) for each in ids or ())


def _node(key: str) -> tuple[int, str]:
    """Return the sort key of a NUMA node's list; keys that are not numbers come last."""
    return (int(key), "") if fullmatch("-?[0-9]{1,9}", key) else (1 << 31, key)


def _typed(kind: type[T], value: object, where: str) -> T:
    if value is None and kind is list:
        return kind()  # Go writes null for an empty list
    if not isinstance(value, kind):
        raise BadCheckpoint(f"{where}: must be {_WORDS[kind]}, not {type(value).__name__}")
    return value
