"""What a judgement finds about the quota of a container's vGPU: the container exceeds it, or is within it again."""

from dataclasses import dataclass
from typing import NamedTuple

from criproxy.devices.plugin.plan import OverQuota
from criproxy.devices.usage.values import Process, Quantity


class Key(NamedTuple):
    """One quota of one container; a tuple, because each reading looks up hundreds of them."""

    container_id: str
    card: str
    quantity: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """A container is over its quota: found once for each incident, and again when a stronger action is due."""

    key: Key
    kind: str
    """The name of the class."""
    used: float
    """In MiB, or in percent of the card's computing units."""
    allowed: int
    """The quota, without the margin."""
    over_since_s: float
    """On the monotonic clock: the first reading in which it was over the quota."""
    action: OverQuota
    largest: Process | None = None
    """The process of the container that uses the most."""
    repeated: bool = False
    """Whether it was over the quota again and again, rather than for long without a break."""


@dataclass(frozen=True, slots=True)
class Within:
    """A container that was over its quota is within it again, or gone."""

    key: Key


Verdict = Over | Within
