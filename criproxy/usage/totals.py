"""Adds up what processes use: for each container and card, and for what belongs to no container."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from criproxy.usage.values import CardUse, ContainerUse, Process, ProcessUse, Reading

_LONGEST_NAME = 60
"""Of the name of a card in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassUse:
    """What is known of the use of the cards of one class: what the daemon is told."""

    kind: str
    """The name of the class."""
    source: str = ""
    """What reports it: nvml, command, or file."""
    problem: str = ""
    """Why it is not known at the moment; the rest is then what was known last."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """By card, why nothing is known of it."""
    cards: tuple[CardUse, ...] = ()
    containers: tuple[ContainerUse, ...] = ()
    """Without their processes."""
    others: tuple[ContainerUse, ...] = ()
    """The same for processes that belong to no container; their ``container_id`` is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """The arguments of ``device-usage``: who uses how much of the node's cards."""

    at_s: float
    """In seconds since the epoch."""
    period_s: float
    """Between two readings."""
    classes: tuple[ClassUse, ...] = ()


def container_uses(kind: str, processes: Iterable[ProcessUse]) -> tuple[ContainerUse, ...]:
    """What each container uses of each card; an empty ``container_id`` stands for all processes without one."""
    found: dict[tuple[str, str], list[ProcessUse]] = {}
    for each in processes:
        found.setdefault((each.container_id, each.card), []).append(each)
    return tuple(_use(kind, container, card, own) for (container, card), own in found.items())


def _use(kind: str, container_id: str, card: str, processes: list[ProcessUse]) -> ContainerUse:
    cores = [each.cores_percent for each in processes if each.cores_percent is not None]
    return ContainerUse(
        container_id=container_id,
        kind=kind,
        card=card,
        memory_mib=sum(each.memory_mib for each in processes),
        cores_percent=round(sum(cores), 1) if cores else None,
        processes=tuple(processes),
    )


def class_use(reading: Reading, source: str, uses: Iterable[ContainerUse]) -> ClassUse:
    """What the daemon is told of a reading that is complete, *uses* of which are known."""
    told = [replace(each, processes=()) for each in uses]
    return ClassUse(
        kind=reading.kind,
        source=source,
        unread=reading.unread,
        cards=reading.cards,
        containers=tuple(each for each in told if each.container_id),
        others=tuple(each for each in told if not each.container_id),
    )


def named(reading: Reading, cards: Mapping[str, str]) -> Reading:
    """The *reading* with the ids of cards in the place of other names, and each process once for a card.

    Args:
        reading: whose cards may have any name.
        cards: ids by those names; a name that is missing stays.
    """
    said = {each.card for each in reading.processes} | {each.card for each in reading.cards} | reading.unread.keys()
    if all(cards.get(card, card) == card for card in said):
        processes = _once(reading.processes)
        return reading if len(processes) == len(reading.processes) else replace(reading, processes=processes)
    return replace(
        reading,
        processes=_once([replace(each, card=cards.get(each.card, each.card)) for each in reading.processes]),
        cards=tuple(replace(each, card=cards.get(each.card, each.card)) for each in reading.cards),
        unread={cards.get(card, card): reason for card, reason in reading.unread.items()},
        sampled_s={cards.get(card, card): sampled_s for card, sampled_s in reading.sampled_s.items()},
    )


def _once(processes: Sequence[ProcessUse]) -> tuple[ProcessUse, ...]:
    """Each process once for each card, with its largest sizes: a source may list it as computing and as drawing."""
    found: dict[tuple[Process, str], ProcessUse] = {}
    for each in processes:
        key = each.process, each.card
        found[key] = _larger(found[key], each) if key in found else each
    return tuple(found.values())


def _larger(one: ProcessUse, other: ProcessUse) -> ProcessUse:
    known = [each.cores_percent for each in (one, other) if each.cores_percent is not None]
    memory_mib, cores_percent = max(one.memory_mib, other.memory_mib), max(known, default=None)
    return replace(one, memory_mib=memory_mib, cores_percent=cores_percent)


def complete(reading: Reading, cards: Mapping[str, str]) -> Reading:
    """The *reading*, with a problem if it names cards that do not exist.

    What is used of a card that does not exist is used of one that is called otherwise, so nobody is to be judged by it.
    A card that is unread may be missing.

    Args:
        reading: whose cards may have any name.
        cards: ids by all names of cards, and by the ids; empty where it is not known which cards there are.
    """
    said = {each.card for each in reading.processes} | {each.card for each in reading.cards}
    unknown = sorted(said - cards.keys()) if cards else []
    if reading.problem or not unknown:
        return reading
    first = unknown[0][:_LONGEST_NAME]
    problem = f"the reading names a card {first} that does not exist"
    if len(unknown) > 1:
        problem = f"the reading names {len(unknown)} cards that do not exist, such as {first}"
    return replace(reading, problem=problem)
