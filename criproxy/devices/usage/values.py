"""Readings of the use of cards, the sums for each container and card, and the grants of containers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from criproxy.devices.classes.vgpu_profiles import Quota
from criproxy.model.text.plain import to_plain

Quantity = Literal["memory", "cores"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
_LONGEST_NAME = 60
"""The maximum length of the name of a card in a sentence."""


class Process(NamedTuple):
    """A process, identified so that a later process with the same PID is a different one.

    A tuple, because each reading looks up all processes.
    """

    pid: int
    """In the host's namespace."""
    start_ticks: int
    """The start time: field 22 of ``/proc/<pid>/stat``."""


class ProcessUse(NamedTuple):
    """What one process uses of one card; a tuple, because each reading makes many of them."""

    process: Process
    card: str
    """The id of the card, as the device plugin offers it."""
    memory_mib: int = 0
    cores_percent: float | None = None
    """Of the card's computing units; None if the source does not report it."""
    container_id: str = ""
    """The container of the process; empty: none, or unknown."""

    def of(self, process: Process, container_id: str) -> "ProcessUse":
        """Return this use as that of a *process* in a container."""
        return ProcessUse(process, self.card, self.memory_mib, self.cores_percent, container_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardUse:
    """The total use of one card."""

    card: str
    memory_mib: int
    total_mib: int
    cores_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one source reports at one time."""

    kind: str
    """The name of the class."""
    at_s: float
    """On the monotonic clock."""
    processes: tuple[ProcessUse, ...] = ()
    cards: tuple[CardUse, ...] = ()
    problem: str = ""
    """Why the reading is incomplete, in one sentence; no container is judged by such a reading."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """By card, why its use is unknown: no container is judged by its use of that card."""
    sampled_s: Mapping[str, float] = field(default_factory=dict)
    """By card, when the newest sample of its computing units was taken, by any clock; a card that is missing has a new
    sample in each reading."""
    unknown_keys: tuple[str, ...] = ()
    """Keys that criproxy does not know; not all of them, if there are many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A resource that is allocated to a container, as the daemon reports it."""

    container_id: str
    namespace: str
    pod: str
    container: str
    pod_uid: str
    kind: str
    resource: str
    ids: tuple[str, ...]
    """As the kubelet allocated them."""
    cards: tuple[str, ...]
    quota: Quota | None = None
    """None: the container has whole cards or replicas, and no quota."""
    exempt: bool = False
    """Whether no action may be taken against the container: its namespace is exempt."""

    @property
    def is_only_observed(self) -> bool:
        """Whether exceeding the quota has no consequences: the container is exempt, or something else enforces it."""
        return self.exempt or (self.quota is not None and not self.quota.watched)

    @property
    def title(self) -> str:
        """The full name of the container, for messages."""
        return f"{self.namespace}/{self.pod}/{self.container}"


@dataclass(slots=True, kw_only=True)
class ContainerUse:
    """What one container uses of one card; nobody changes it, but to make a frozen one takes three times as long."""

    container_id: str
    kind: str
    card: str
    memory_mib: int
    cores_percent: float | None = None
    processes: tuple[ProcessUse, ...] = field(default=(), repr=False, compare=False)
    """Those that use so much; not reported to the daemon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassUse:
    """The use of the cards of one class, as it is reported to the daemon."""

    kind: str
    """The name of the class."""
    source: str = ""
    """The source of the readings: nvml, command, or file."""
    problem: str = ""
    """Why the use is unknown at the moment; the other fields then have the last known use."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """By card, why its use is unknown."""
    cards: tuple[CardUse, ...] = ()
    containers: tuple[ContainerUse, ...] = ()
    others: tuple[ContainerUse, ...] = ()
    """The use of processes that belong to no container; their ``container_id`` is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """The arguments of ``device-usage``: the use of all cards of the node."""

    at_s: float
    """In seconds since the epoch."""
    period_s: float
    """The time between two readings."""
    classes: tuple[ClassUse, ...] = ()


def plain_report(report: UsageReport) -> dict[str, Any]:
    """Return the same as `to_plain`, without the processes; that would take several times as long in each period."""
    plain: dict[str, Any] = to_plain(replace(report, classes=()))
    return {**plain, "classes": [_plain_class(each) for each in report.classes]}


def _plain_class(use: ClassUse) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(replace(use, containers=(), others=()))
    lists = {"containers": use.containers, "others": use.others}
    return plain | {name: [_plain_use(each) for each in uses] for name, uses in lists.items() if uses}


def _plain_use(use: ContainerUse) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "container_id": use.container_id,
        "kind": use.kind,
        "card": use.card,
        "memory_mib": use.memory_mib,
    }
    if use.cores_percent is not None:
        plain["cores_percent"] = use.cores_percent
    return plain


def container_uses(kind: str, processes: Iterable[ProcessUse]) -> tuple[ContainerUse, ...]:
    """Return what each container uses of each card; an empty ``container_id`` is for all processes without one."""
    found: dict[tuple[str, str], list[ProcessUse]] = {}
    for each in processes:
        found.setdefault((each.container_id, each.card), []).append(each)
    return tuple([_use(kind, container, card, own) for (container, card), own in found.items()])


def _use(kind: str, container_id: str, card: str, processes: list[ProcessUse]) -> ContainerUse:
    cores = [each.cores_percent for each in processes if each.cores_percent is not None]
    return ContainerUse(
        container_id=container_id,
        kind=kind,
        card=card,
        memory_mib=sum([each.memory_mib for each in processes]),
        cores_percent=round(sum(cores), 1) if cores else None,
        processes=tuple(processes),
    )


def class_use(reading: Reading, source: str, uses: Sequence[ContainerUse]) -> ClassUse:
    """Return the report about a complete reading, whose *uses* are already known."""
    return ClassUse(
        kind=reading.kind,
        source=source,
        unread=reading.unread,
        cards=reading.cards,
        containers=tuple([each for each in uses if each.container_id]),
        others=tuple([each for each in uses if not each.container_id]),
    )


def with_card_ids(reading: Reading, cards: Mapping[str, str]) -> Reading:
    """Return the *reading* with the ids of cards in place of their other names, and each process once for a card.

    Args:
        reading: a reading with any names of cards.
        cards: the ids by these names; a name that is missing stays.
    """
    names = {each.card for each in reading.processes} | {each.card for each in reading.cards} | reading.unread.keys()
    if all(cards.get(card, card) == card for card in names):
        processes = _once(reading.processes)
        return reading if len(processes) == len(reading.processes) else replace(reading, processes=processes)
    return replace(
        reading,
        processes=_once([each._replace(card=cards.get(each.card, each.card)) for each in reading.processes]),
        cards=tuple(replace(each, card=cards.get(each.card, each.card)) for each in reading.cards),
        unread={cards.get(card, card): reason for card, reason in reading.unread.items()},
        sampled_s={cards.get(card, card): sampled_s for card, sampled_s in reading.sampled_s.items()},
    )


def _once(processes: Sequence[ProcessUse]) -> tuple[ProcessUse, ...]:
    """Return each process once for each card, with its highest values: sources may list it for compute and graphics."""
    found: dict[tuple[Process, str], ProcessUse] = {}
    for each in processes:
        key = each.process, each.card
        found[key] = _larger(found[key], each) if key in found else each
    return tuple(found.values())


def _larger(one: ProcessUse, other: ProcessUse) -> ProcessUse:
    known = [each.cores_percent for each in (one, other) if each.cores_percent is not None]
    memory_mib, cores_percent = max(one.memory_mib, other.memory_mib), max(known, default=None)
    return one._replace(memory_mib=memory_mib, cores_percent=cores_percent)


def with_unknown_cards(reading: Reading, cards: Mapping[str, str]) -> Reading:
    """Return the *reading* with what follows from names of cards that do not exist: each may be misspelt.

    If one is used, the reading has a problem, so that no container is judged by it. If one is only unread, it may be
    any of the cards that the reading does not name, so these are unread, too: otherwise, they would seem to be unused.

    Args:
        reading: a reading with any names of cards.
        cards: the ids by all names of cards, including the ids; empty if it is unknown which cards exist.
    """
    if reading.problem or not cards:
        return reading
    used = {each.card for each in reading.processes} | {each.card for each in reading.cards}
    if unknown := sorted(used - cards.keys()):
        return replace(reading, problem=f"the reading names {_nonexistent(unknown)}")
    if unknown := sorted(reading.unread.keys() - cards.keys()):
        named = {cards[name] for name in (*used, *reading.unread) if name in cards}
        reason = f"the reading does not name it, but has {_nonexistent(unknown)} as unread"
        others = dict.fromkeys(sorted(set(cards.values()) - named), reason)
        return replace(reading, unread={**reading.unread, **others})
    return reading


def _nonexistent(names: Sequence[str]) -> str:
    first = names[0][:_LONGEST_NAME]
    more = f"{len(names)} cards that do not exist, such as {first}"
    return more if len(names) > 1 else f"a card {first} that does not exist"
