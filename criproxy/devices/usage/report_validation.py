"""Checks the reports of the watcher about the use of cards: nothing that containers get depends on them."""

from collections.abc import Iterator, Mapping
from typing import Any

from criproxy.devices.usage.totals import ClassUse, UsageReport
from criproxy.devices.usage.values import CardUse, ContainerUse
from criproxy.model.text.bounded import bounded
from criproxy.model.text.plain import from_plain

MOST_CLASSES = 64
MOST_CARDS = 1024
MOST_CONTAINERS = 2048
"""Pairs of a container and one of its cards."""
MOST_CHARACTERS = 500
"""The maximum length of each text."""
MOST_MIB = 1 << 40
MOST_PERCENT = 1e6
LONGEST_PERIOD_S = 300.0
MISSED, PATIENCE_S = 3, 5.0


class BadUsage(ValueError):
    """The report is invalid; the text says which part of it."""


def stale_after_s(report: UsageReport) -> float:
    """Return after how many seconds without another report the use is unknown."""
    return MISSED * report.period_s + PATIENCE_S


def read_usage(arguments: Mapping[str, Any]) -> UsageReport:
    """Parse the arguments of the command ``device-usage``.

    Raises:
        BadUsage: the arguments are invalid, or have more parts or larger numbers than the daemon keeps.
    """
    try:
        report = from_plain(UsageReport, bounded(arguments, MOST_CHARACTERS))
    except ValueError as error:
        raise BadUsage(str(error)) from None
    if not 0 < report.period_s <= LONGEST_PERIOD_S:
        raise BadUsage(f"period_s: must be more than 0 and at most {LONGEST_PERIOD_S:g}, not {report.period_s!r}")
    _check_counts(report)
    for number, each in enumerate(report.classes):
        for problem in _problems(each):
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


def _problems(use: ClassUse) -> Iterator[str]:
    """Yield what is invalid in a class."""
    if not use.kind:
        yield "kind: must not be empty"
    for number, card in enumerate(use.cards):
        yield from _amount_problems(f"cards[{number}]", card, total_mib=card.total_mib)
    for name, entries in (("containers", use.containers), ("others", use.others)):
        for number, each in enumerate(entries):
            yield from _amount_problems(f"{name}[{number}]", each)
            if (name == "containers") is not bool(each.container_id):
                yield f"{name}[{number}].container_id: must be set in containers, and nowhere else"


def _amount_problems(where: str, use: CardUse | ContainerUse, total_mib: int = 0) -> Iterator[str]:
    if not use.card:
        yield f"{where}.card: must not be empty"
    for each in (use.memory_mib, total_mib):
        if not 0 <= each <= MOST_MIB:
            yield f"{where}: must be an amount of MiB, not {each!r}"
    if use.cores_percent is not None and not 0 <= use.cores_percent <= MOST_PERCENT:  # also excludes NaN
        yield f"{where}.cores_percent: must be a percentage, not {use.cores_percent!r}"
