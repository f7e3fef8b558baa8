"""One entry of the history that `criproxy explain` prints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Fact = str | int | float | bool | None | list[int] | dict[str, Any]
"""What JSON can say of one thing: sets in kernel notation, amounts with their unit in the key."""


class Kind(Enum):
    """The kind of an entry."""

    ASKED = "asked"
    """What its create message said, number by number."""
    DEVICES = "devices"
    """What it may see of accelerators, and what was changed in its create for that."""
    GRANTED = "granted"
    REFUSED = "refused"
    CONSIDERED = "considered"
    """The candidates of a decision, and for a refusal the containers that would have to leave; at the decision's
    time."""
    PASSED = "passed"
    """Our own code failed at its create, which went on without a place of its own."""
    REPEATED = "repeated"
    """A create that repeats one of unknown outcome, and takes over its place."""
    ADOPTED = "adopted"
    """It was found in the runtime and not placed by us."""
    CREATED = "created"
    """The runtime made it; from then on it has an id."""
    WAITED = "waited"
    """Its start was held until others had given up CPUs, or refused because they did not."""
    STARTED = "started"
    UPDATED = "updated"
    """An update of ours reached it, and was read back."""
    FAILED = "failed"
    """An update of ours failed; it is tried again."""
    LOST = "lost"
    """An update of ours was answered OK, but the cgroup says otherwise; it is tried again."""
    DRIFT = "drift"
    """Another program changed its cgroup."""
    RESIZED = "resized"
    UNKNOWN = "unknown"
    """A call about it ended without an answer."""
    RELEASED = "released"
    """It was unpinned by `criproxy release`."""
    UNHEALTHY = "unhealthy"
    """Its device plugin reported a card of it as unhealthy, or healthy again; and what was done about that."""
    QUOTA = "quota"
    """It was found over the quota of its vGPU, or within it again; and what was done about that."""
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
"""Kinds that a container may see any number of times: of these only the newest are kept."""
LAST = frozenset({Kind.REFUSED, Kind.PASSED, Kind.REPEATED, Kind.GONE})
"""No other entry follows one of these."""


@dataclass(frozen=True, slots=True)
class Record:
    """Something that happened to a container, or to the node."""

    at_s: float
    """Seconds since the epoch."""
    key: str
    """The container's id, or its reservation id from before it had one; empty for the node."""
    container: str
    """NAMESPACE/POD/CONTAINER."""
    kind: Kind
    sentences: tuple[str, ...]
    """For people: what happened, and why."""
    life: str = ""
    """What all records of one container have in common, from its create to its end."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """The same for programs, as far as it is more than words."""
