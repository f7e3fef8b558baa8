"""The stamp of a container: its identity and its requests, but not its place.

It is the annotation `ANNOTATION`, written at CreateContainer. Annotations cannot change when a container is moved, so
the stamp does not contain CPUs.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from criproxy.cri import api_pb2 as api
from criproxy.model.resources import MAX_MACHINE_MILLI
from criproxy.model.text.plain import from_plain, to_plain
from criproxy.model.workload import Missed

ANNOTATION = "criproxy/placement"
MAX_INT64 = (1 << 63) - 1
_MAX_ID_LENGTH = 128


_UNSAID = "-"
"""Instead of files, where the stamp of an older criproxy says nothing about them."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Identity and requests of one container, as they were when it was placed."""

    reservation: str
    """The reservation id of the container."""
    qos: str
    """Name of the QoS class, such as ``Guaranteed``."""
    cpu_milli: int = 0
    cpu_limit_milli: int = 0
    """0 if there is none."""
    cpu_quota_us: int = 0
    cpu_period_us: int = 0
    """The limit as it was sent; 0 if there is none."""
    memory_limit_bytes: int = 0
    """0 if there is none."""
    memory_request_low_bytes: int = 0
    memory_request_high_bytes: int = 0
    """0 if the request is unknown."""
    hints: str = ""
    """For each of its cards the NUMA nodes next to it, in kernel notation with ``;`` between them."""
    stays: bool = False
    """Whether an update might take its cards away."""
    pod_cpu_milli: int = 0
    """The CPU of its whole pod at that time; 0 if unknown."""
    of_pod: bool = False
    """Whether it has no CPU request of its own, and shares that of its pod."""
    kubelet_files: str = _UNSAID
    """The cgroup files that the kubelet itself sets, see `Container.kubelet_files`; with spaces between them."""

    @property
    def is_before_classes(self) -> bool:
        """Whether a criproxy without classes has placed the container, so that nobody has looked up its class."""
        return self.kubelet_files == _UNSAID

    def to_text(self) -> str:
        """Return the value of the annotation: JSON with sorted keys."""
        return _ENCODER.encode({name: getattr(self, name) for name in _TYPES})


_TYPES = {field.name: field.type for field in fields(Stamp)}
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def read_stamp(annotations: Mapping[str, str]) -> Stamp | None:
    """Return the stamp among a container's *annotations*; None if there is none or it is invalid.

    Unknown keys are ignored: a newer criproxy may have written them.
    """
    try:
        values = json.loads(annotations.get(ANNOTATION, "null"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    known = {name: _bounded(value) for name, value in values.items() if type(value) is _TYPES.get(name)}
    stamp = Stamp(**known) if {"reservation", "qos"} <= known.keys() else None
    return stamp if stamp and _is_id(stamp.reservation) else None


def _bounded(value: Any) -> Any:  # noqa: ANN401 (a value of any field)
    """Limit a number to the range of CRI: any program may have written the annotation."""
    return min(max(value, 0), MAX_INT64) if type(value) is int else value


def _is_id(text: str) -> bool:
    """Whether it may be a reservation id: these are short and plain."""
    return 0 < len(text) <= _MAX_ID_LENGTH and text.isascii() and text.isprintable()


MISSED = "criproxy/missed"
"""The annotation of a container at whose create criproxy failed: why it has no place, and since when."""


def missed_text(missed: Missed) -> str:
    """Return the value of `MISSED`."""
    return _ENCODER.encode(to_plain(missed))


def in_spec(container_id: str) -> dict[str, str]:
    """Return under which keys our annotations are in the OCI specification of a container, where NRI put them.

    With the container's id, which no tenant knows in advance: runtimes copy annotations of pods into specifications.
    """
    return {key: f"{key}.{container_id}" for key in (ANNOTATION, MISSED)}


def read_missed(annotations: Mapping[str, str]) -> Missed | None:
    """Return the mark in a container's *annotations*; None if there is none or it is invalid."""
    try:
        return from_plain(Missed, json.loads(annotations[MISSED]))
    except (KeyError, ValueError, RecursionError):
        return None


def never_to_start(sandboxes: Iterable[api.PodSandbox], items: Iterable[api.Container]) -> frozenset[str]:
    """Return created containers in sandboxes that are no longer ready, for example after a reboot.

    Runtimes do not start containers there, but no call reports that: the kubelet creates another sandbox, and removes
    this one some time later.
    """
    ended = {sandbox.id for sandbox in sandboxes if sandbox.state == api.SANDBOX_NOTREADY}
    created = (item for item in items if item.state == api.CONTAINER_CREATED)
    return frozenset(item.id for item in created if item.pod_sandbox_id in ended)


def stamped(items: Iterable[api.Container], reservation: str) -> api.Container | None:
    """Return the container among *items* whose stamp has *reservation*."""
    stamps = ((item, read_stamp(item.annotations)) for item in items)
    return next((item for item, stamp in stamps if stamp and stamp.reservation == reservation), None)


def pod_totals(items: Iterable[api.Container]) -> dict[str, int]:
    """Return the CPU of the whole pod by sandbox, from the stamp of its newest container."""
    stamps = ((item, read_stamp(item.annotations)) for item in sorted(items, key=lambda item: item.created_at))
    return {
        item.pod_sandbox_id: min(stamp.pod_cpu_milli, MAX_MACHINE_MILLI)
        for item, stamp in stamps
        if stamp and stamp.pod_cpu_milli > 0
    }
