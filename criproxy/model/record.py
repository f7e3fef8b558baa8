"""One entry of the history that `criproxy explain` prints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Fact = str | int | float | bool | None | list[int] | dict[str, Any]
"""A JSON value: sets are in kernel notation, amounts have their unit in the key."""


class Kind(Enum):
    """The kind of an entry."""

    ASKED = "asked"
    """The numbers in its create message."""
    DEVICES = "devices"
    """Which cards it may see, and how its create was changed for that."""
    GRANTED = "granted"
    REFUSED = "refused"
    CONSIDERED = "considered"
    """The candidates of a decision, and for a refusal the containers that would have to leave; at the time of the
    decision."""
    PASSED = "passed"
    """criproxy failed at its create, which continued without a grant."""
    REPEATED = "repeated"
    """A create that repeats one of unknown outcome, and takes over its place."""
    ADOPTED = "adopted"
    """It was found in the runtime, and criproxy did not place it."""
    CREATED = "created"
    """The runtime created it; from then on it has an id."""
    WAITED = "waited"
    """Its start was held until others had left its CPUs, or refused because they did not."""
    STARTED = "started"
    UPDATED = "updated"
    """An update was applied, and read back."""
    FAILED = "failed"
    """An update failed; it is retried."""
    LOST = "lost"
    """An update was answered OK, but the cgroup shows other values; it is retried."""
    DRIFT = "drift"
    """Another program changed its cgroup."""
    RESIZED = "resized"
    UNKNOWN = "unknown"
    """A call about it ended without an answer."""
    RELEASED = "released"
    """It was unpinned by `criproxy release`."""
    UNHEALTHY = "unhealthy"
    """Its device plugin reported one of its cards as unhealthy, or healthy again; and the action."""
    QUOTA = "quota"
    """It was found over the quota of its vGPU, or within it again; and the action."""
    EXITED = "exited"
    GONE = "gone"
    NODE = "node"
    """Something about the whole node, such as another policy; of no container."""


REPEATING = frozenset(
    {
        Kind.WAITED,
        Kind.UPDATED,
        Kind.FAILED,
        Kind.LOST,
        Kind.DRIFT,
        Kind.RESIZED,
        Kind.UNKNOWN,
        Kind.UNHEALTHY,
        Kind.QUOTA,
    }
)
"""Kinds that a container may have any number of times: only the newest are kept."""
LAST = frozenset({Kind.REFUSED, Kind.PASSED, Kind.REPEATED, Kind.GONE})
"""Kinds of the last entry of a container."""


@dataclass(frozen=True, slots=True)
class Record:
    """Something that happened to a container, or to the node."""

    at_s: float
    """Seconds since the epoch."""
    key: str
    """The container's id, or its reservation id before it had one; empty for the node."""
    container: str
    """NAMESPACE/POD/CONTAINER."""
    kind: Kind
    sentences: tuple[str, ...]
    """What happened, and why, for people."""
    life: str = ""
    """The container instance: the same for all its records, from its create to its end."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """The same for programs."""
