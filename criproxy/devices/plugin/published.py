"""The report of our device plugin to the daemon: what it offers to the kubelet, and the health of its cards.

docs/devices.md describes the keys. The report is for users and metrics: nothing that containers get depends on it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from criproxy.errors import UsageError
from criproxy.model.text.bounded import bounded
from criproxy.model.text.plain import from_plain

T = TypeVar("T")
MOST_RESOURCES = 256
MOST_CARDS = 1024
MOST_LABELS = 256
MOST_CHARACTERS = 500
"""The maximum length of each text."""
SHORTEST_STALE_S, LONGEST_STALE_S = 30.0, 600.0
MISSED = 3
"""After so many missing reports, the device plugin counts as not running."""
NOT_YET = "NVML has not answered yet"
"""`Published.nvml` while a query may still be answered: the first answer may take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """One resource of the device plugin."""

    name: str
    """The resource, with its domain."""
    device_class: str
    ids: int = 0
    """The number of ids, including unhealthy ones: cards, or their replicas."""
    healthy: int = 0
    """The number of healthy ids."""
    registered: bool = True
    """Whether the kubelet has accepted it."""
    starting: bool = False
    """Whether it is not registered only because it has just begun."""
    problem: str = ""
    """Why the kubelet has not accepted it, as a sentence."""
    profile: str = ""
    """The profile of the vGPUs; empty: these are not vGPUs."""
    memory_mib: int = 0
    """The memory quota of one vGPU, the first one if cards differ in size; 0: there is none."""
    cores_percent: int = 0
    """The compute quota of one vGPU; 0: there is none."""
    enforce: tuple[str, ...] = ()
    """The methods by which the profile is to be enforced."""
    not_enforced: Mapping[str, str] = field(default_factory=dict)
    """The methods among them that cannot work on this node, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCard:
    """One card of the device plugin."""

    device_class: str
    id: str
    """The id that the kubelet knows, without the number of a replica."""
    parent: str = ""
    """The id of the card of which it is a part, such as the GPU of a MIG device; empty: it is a whole card."""
    healthy: bool = True
    reason: str = ""
    """Why the card is unhealthy, or was so last."""
    since_s: float | None = None
    """Since when, in seconds since the epoch."""
    action: str = ""
    """What to do with its containers, as `Action`; empty: the card has not failed, so that there is no incident."""
    replicas: Mapping[str, int] = field(default_factory=dict)
    """The number of replicas by resource; 0: a whole card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One report."""

    version: str = ""
    """The version of criproxy."""
    instance: str = ""
    """A random word that one run of the device plugin has; empty: its version has none."""
    interval_s: float = 10.0
    """The maximum time until the next report."""
    resources: tuple[Advertised, ...] = ()
    cards: tuple[PublishedCard, ...] = ()
    omitted_cards: int = 0
    """How many cards are not in `cards`; unhealthy cards are omitted last."""
    unremoved: str = ""
    """Where a former directory of a vGPU is that cannot be removed, and why; empty: there is none."""
    refused: str = ""
    """Why its present configuration files are not in effect; empty: they are."""
    nvml: str = ""
    """Why NVML does not answer on a machine with NVIDIA's cards; `NOT_YET`: it may only be slow; empty: it does."""
    nvml_since_s: float | None = None
    """Since when, in seconds since the epoch."""
    nvml_pending: bool = False
    """Whether it has never answered, so that it is not known how the cards are divided."""
    configuration: str = ""
    """The file of NVIDIA's device plugin in effect, or the configuration that the cluster chose; empty: none."""
    labels: Mapping[str, str] | None = None
    """The labels that describe the node's cards; None: not known yet, or its version reports none."""

    @property
    def stale_after_s(self) -> float:
        """The time without another report after which the device plugin counts as not running."""
        return min(max(MISSED * self.interval_s, SHORTEST_STALE_S), LONGEST_STALE_S)

    @property
    def serves(self) -> bool:
        """Whether the kubelet has accepted any of its resources."""
        return any(each.registered for each in self.resources)

    def resources_of(self, device_class: str) -> Iterable[Advertised]:
        """Return the resources of a class."""
        return (each for each in self.resources if each.device_class == device_class)


def free_vgpus(report: Published, given: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Return the number of free vGPUs, by class and profile.

    Args:
        report: the report of the device plugin.
        given: the number of ids that containers have, by class and resource.
    """
    return {
        (each.device_class, each.profile): max(each.healthy - given.get((each.device_class, each.name), 0), 0)
        for each in report.resources
        if each.profile
    }


def read_report(arguments: Mapping[str, Any]) -> Published:
    """Parse the arguments of the command.

    Raises:
        UsageError: the arguments are invalid, or have more parts than the daemon keeps.
    """
    report = parse_report(Published, arguments)
    check_counts(
        resources=(len(report.resources), MOST_RESOURCES),
        cards=(len(report.cards), MOST_CARDS),
        labels=(len(report.labels or ()), MOST_LABELS),
    )
    if not report.interval_s > 0:
        raise UsageError(f"interval_s: must be more than 0, not {report.interval_s!r}")
    return report


def parse_report(kind: type[T], arguments: Mapping[str, Any]) -> T:
    """Parse a report with texts of bounded length; raises UsageError."""
    try:
        return from_plain(kind, bounded(arguments, MOST_CHARACTERS))
    except ValueError as error:
        raise UsageError(str(error)) from None


def check_counts(**counts: tuple[int, int]) -> None:
    """Raise UsageError if a report has more parts than the daemon keeps; by name: how many there are, and the limit."""
    for name, (count, most) in counts.items():
        if count > most:
            raise UsageError(f"{name}: {count} are more than {most}")
