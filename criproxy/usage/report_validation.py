"""Checks what the watcher reports of the use of cards: nothing that containers get depends on it."""

from collections.abc import Iterator, Mapping
from typing import Any

from criproxy.model.bounded import bounded
from criproxy.model.plain import from_plain
from criproxy.usage.totals import ClassUse, UsageReport
from criproxy.usage.values import CardUse, ContainerUse

MOST_CLASSES = 64
MOST_CARDS = 1024
MOST_CONTAINERS = 2048
"""Containers and cards that belong together, each pair once."""
MOST_CHARACTERS = 500
"""Of each text."""
MOST_MIB = 1 << 40
MOST_PERCENT = 1e6
LONGEST_PERIOD_S = 300.0
MISSED, PATIENCE_S = 3, 5.0


class BadUsage(ValueError):
    """A report that cannot be used; the text says which part of it."""


def stale_after_s(report: UsageReport) -> float:
    """After so long without another report, nobody knows who uses what."""
    return MISSED * report.period_s + PATIENCE_S


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
    _check_counts(report)
    for number, each in enumerate(report.classes):
        for problem in _wrong(each):
            raise BadUsage(f"classes[{number}].{problem}")
    return report


def _check_counts(report: UsageReport) -> None:
    classes = report.classes
    for name, count, most in (
        ("classes", len(classes), MOST_CLASSES),
        ("cards", sum(max(len(each.cards), len(each.others), len(each.unread)) for each in classes), MOST_CARDS),
        ("containers", sum(len(each.containers) for each in classes), MOST_CONTAINERS),
    ):
        if count > most:
            raise BadUsage(f"{name}: {count} are more than {most}")


def _wrong(use: ClassUse) -> Iterator[str]:
    """What cannot be in a class, the first thing first."""
    if not use.kind:
        yield "kind: must not be empty"
    for number, card in enumerate(use.cards):
        yield from _wrong_of(f"cards[{number}]", card, total_mib=card.total_mib)
    for name, entries in (("containers", use.containers), ("others", use.others)):
        for number, each in enumerate(entries):
            yield from _wrong_of(f"{name}[{number}]", each)
            if (name == "containers") is not bool(each.container_id):
                yield f"{name}[{number}].container_id: must be set in containers, and nowhere else"


def _wrong_of(where: str, use: CardUse | ContainerUse, total_mib: int = 0) -> Iterator[str]:
    if not use.card:
        yield f"{where}.card: must not be empty"
    for each in (use.memory_mib, total_mib):
        if not 0 <= each <= MOST_MIB:
            yield f"{where}: must be an amount of MiB, not {each!r}"
    if use.cores_percent is not None and not 0 <= use.cores_percent <= MOST_PERCENT:  # nor is it NaN
        yield f"{where}.cores_percent: must be a percentage, not {use.cores_percent!r}"
