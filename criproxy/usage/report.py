"""What the watcher tells the daemon: who uses how much of which card, at one moment.

docs/vgpu.md has the keys. Nothing that containers get depends on it: it is for people, metrics and files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from criproxy.model.bounded import bounded
from criproxy.model.plain import from_plain
from criproxy.usage.values import ContainerUse, Quantity, Reading

MOST_CARDS = 1024
MOST_CONTAINERS = 2048
"""Containers and cards that belong together, each pair once."""
MOST_PROBLEMS = 64
MOST_CHARACTERS = 500
"""Of each text."""
MOST_MIB = 1 << 40
MOST_PERCENT = 1e6
LONGEST_PERIOD_S = 300.0
MISSED, PATIENCE_S = 3, 5.0
"""After so many reports that did not come, and so long, nobody knows who uses what."""
OverSince = Mapping[tuple[str, str, Quantity], float]
"""By container, card and quantity, since when a container is over its quota, in seconds since the epoch."""


class BadUsage(ValueError):
    """A report that cannot be used; the text says which part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSample:
    """What all together use of one card."""

    device_class: str
    card: str
    """Its id as the kubelet knows it."""
    memory_mib: int
    total_mib: int = 0
    """0 where it is not known."""
    cores_percent: float | None = None
    """None where its backend does not know."""
    other_mib: int = 0
    """What is used by processes that belong to no container."""
    other_cores_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSample:
    """What one container uses of one card."""

    container_id: str
    device_class: str
    card: str
    memory_mib: int
    cores_percent: float | None = None
    memory_over_since_s: float | None = None
    """Since when it is over its quota of memory, in seconds since the epoch; None: it is not."""
    cores_over_since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """One report."""

    period_s: float = 1.0
    """How long until it reports again, at the most."""
    cards: tuple[CardSample, ...] = ()
    containers: tuple[ContainerSample, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    """By class, why its use is not known, or not completely: a sentence."""

    @property
    def stale_after_s(self) -> float:
        """After so long without another report, nobody knows who uses what."""
        return MISSED * self.period_s + PATIENCE_S


def read_usage(arguments: Mapping[str, Any]) -> UsageReport:
    """The report in the arguments of the command ``device-usage``.

    Raises:
        BadUsage: it is none, or has more parts or larger numbers than the daemon keeps.
    """
    try:
        report = from_plain(UsageReport, bounded(arguments, MOST_CHARACTERS))
    except ValueError as error:
        raise BadUsage(str(error)) from None
    if not 0 < report.period_s <= LONGEST_PERIOD_S:
        raise BadUsage(f"period_s: must be more than 0 and at most {LONGEST_PERIOD_S:g}, not {report.period_s!r}")
    for name, count, most in (
        ("cards", len(report.cards), MOST_CARDS),
        ("containers", len(report.containers), MOST_CONTAINERS),
        ("problems", len(report.problems), MOST_PROBLEMS),
    ):
        if count > most:
            raise BadUsage(f"{name}: {count} are more than {most}")
    for number, card in enumerate(report.cards):
        _check(f"cards[{number}]", card.device_class, card.card)
        _check_numbers(f"cards[{number}]", card.memory_mib, card.total_mib, card.other_mib)
        _check_shares(f"cards[{number}]", card.cores_percent, card.other_cores_percent)
    for number, use in enumerate(report.containers):
        _check(f"containers[{number}]", use.device_class, use.card, use.container_id)
        _check_numbers(f"containers[{number}]", use.memory_mib)
        _check_shares(f"containers[{number}]", use.cores_percent)
        _check_times(f"containers[{number}]", use.memory_over_since_s, use.cores_over_since_s)
    return report


def _check(where: str, *names: str) -> None:
    if not all(names):
        raise BadUsage(f"{where}: device_class, card and container_id must not be empty")


def _check_numbers(where: str, *mib: int) -> None:
    for each in mib:
        if not 0 <= each <= MOST_MIB:
            raise BadUsage(f"{where}: must be MiB from 0 on, not {each!r}")


def _check_shares(where: str, *percent: float | None) -> None:
    for each in percent:
        if each is not None and not 0 <= each <= MOST_PERCENT:  # nor is it NaN
            raise BadUsage(f"{where}: must be percent from 0 on, not {each!r}")


def _check_times(where: str, *times_s: float | None) -> None:
    for each in times_s:
        if each is not None and not 0 < each < 1e11:
            raise BadUsage(f"{where}: must be seconds since the epoch, not {each!r}")


def usage_report(
    period_s: float, readings: Iterable[Reading], uses: Iterable[ContainerUse], over_since: OverSince
) -> UsageReport:
    """The report on what backends have read.

    Args:
        period_s: how long until the next one, at the most.
        readings: the last one of each class.
        uses: of containers.
        over_since: who is over a quota, also within the grace.
    """
    kept = list(readings)
    return UsageReport(
        period_s=period_s,
        cards=tuple(_cards(kept))[:MOST_CARDS],
        containers=tuple(_container(each, over_since) for each in uses)[:MOST_CONTAINERS],
        problems={reading.kind: reading.problem for reading in kept if reading.problem},
    )


def _cards(readings: Iterable[Reading]) -> Iterable[CardSample]:
    """The cards of readings, with what belongs to no container."""
    for reading in readings:
        for card in reading.cards:
            others = [each for each in reading.processes if each.card == card.card and not each.container_id]
            cores = [each.cores_percent for each in others if each.cores_percent is not None]
            yield CardSample(
                device_class=reading.kind,
                card=card.card,
                memory_mib=card.memory_mib,
                total_mib=card.total_mib,
                cores_percent=card.cores_percent,
                other_mib=sum(each.memory_mib for each in others),
                other_cores_percent=sum(cores) if cores else None,
            )


def _container(use: ContainerUse, over_since: OverSince) -> ContainerSample:
    return ContainerSample(
        container_id=use.container_id,
        device_class=use.kind,
        card=use.card,
        memory_mib=use.memory_mib,
        cores_percent=use.cores_percent,
        memory_over_since_s=over_since.get((use.container_id, use.card, "memory")),
        cores_over_since_s=over_since.get((use.container_id, use.card, "cores")),
    )
