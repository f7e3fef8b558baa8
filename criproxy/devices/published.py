"""What our device plugin tells the daemon of itself: what it offers to the kubelet, and how its cards are.

docs/devices.md has the keys. It is for people and metrics: nothing that containers get depends on it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from criproxy.model.bounded import bounded
from criproxy.model.plain import from_plain

MOST_RESOURCES = 256
MOST_CARDS = 1024
MOST_CHARACTERS = 500
"""Of each text."""
SHORTEST_STALE_S, LONGEST_STALE_S = 30.0, 600.0
MISSED = 3
"""So many reports that did not come in time make it one that does not run."""


class BadReport(ValueError):
    """A report that cannot be used; the text says which part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """One resource of the device plugin."""

    name: str
    """With its domain."""
    device_class: str
    ids: int = 0
    """How many the kubelet can allocate, unhealthy ones included: cards, or their replicas."""
    healthy: int = 0
    """Those of them that are healthy."""
    registered: bool = True
    """Whether the kubelet has accepted it."""
    starting: bool = False
    """Whether it is not registered only because it has just begun."""
    problem: str = ""
    """Why not; a sentence."""
    profile: str = ""
    """The profile whose vGPUs these are; empty: they are none."""
    memory_mib: int = 0
    """The quota of one vGPU; 0: there is none. Where cards differ in size, that of the first."""
    cores_percent: int = 0
    """The quota of one vGPU; 0: there is none."""
    enforce: tuple[str, ...] = ()
    """The methods by which the profile is to be enforced."""
    not_enforced: Mapping[str, str] = field(default_factory=dict)
    """Those of them that cannot work on this node, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCard:
    """One card of the device plugin."""

    device_class: str
    id: str
    """As the kubelet knows it, without the number of a replica."""
    parent: str = ""
    """The id of the card of which it is a part, such as a MIG device of a GPU; empty: it is a whole one."""
    healthy: bool = True
    reason: str = ""
    """Why it is not, or was not last."""
    since_s: float | None = None
    """When that began, in seconds since the epoch."""
    replicas: Mapping[str, int] = field(default_factory=dict)
    """By resource, in how many it is shared; 0: as a whole card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One report."""

    version: str = ""
    """Of the criproxy that it is."""
    interval_s: float = 10.0
    """How long until it reports again, at the most."""
    resources: tuple[Advertised, ...] = ()
    cards: tuple[PublishedCard, ...] = ()
    omitted_cards: int = 0
    """How many there are beside `cards`: none of these is unhealthy as long as there is room."""

    @property
    def stale_after_s(self) -> float:
        """After so long without another report, the device plugin does not run."""
        return min(max(MISSED * self.interval_s, SHORTEST_STALE_S), LONGEST_STALE_S)

    def resources_of(self, device_class: str) -> Iterable[Advertised]:
        """Those of a class."""
        return (each for each in self.resources if each.device_class == device_class)


def free_vgpus(report: Published, given: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """By class and profile, how many vGPUs no container has.

    Args:
        report: what is offered.
        given: by class and resource, how many ids containers have.
    """
    return {
        (each.device_class, each.profile): max(each.healthy - given.get((each.device_class, each.name), 0), 0)
        for each in report.resources
        if each.profile
    }


def read_report(arguments: Mapping[str, Any]) -> Published:
    """The report in the arguments of the command.

    Raises:
        BadReport: it is none, or has more parts than the daemon keeps.
    """
    try:
        report = from_plain(Published, bounded(arguments, MOST_CHARACTERS))
    except ValueError as error:
        raise BadReport(str(error)) from None
    for name, count, most in (
        ("resources", len(report.resources), MOST_RESOURCES),
        ("cards", len(report.cards), MOST_CARDS),
    ):
        if count > most:
            raise BadReport(f"{name}: {count} are more than {most}")
    if not report.interval_s > 0:
        raise BadReport(f"interval_s: must be more than 0, not {report.interval_s!r}")
    return report
