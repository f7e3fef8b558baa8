"""Which container got which cards: what each source says, and what follows for each class.

Three answers are possible, and the difference between the last two matters: these cards; none; unknown. A
variable never grants a card, since a pod's own comes in the same list as that of a device plugin.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from criproxy.devices.asked import Asked
from criproxy.devices.cards import Stock, Stocks
from criproxy.devices.classes import DeviceClass
from criproxy.devices.offers import card_of, unique
from criproxy.devices.own_resources import class_of, own_word
from criproxy.model.cpuset import CpuSet

ANNOTATION = "devices.criproxy.io/"
"""Before the name of a resource, in which ``_`` stands for ``/``; the value is a list of ids."""
OWN = "annotation"
"""The source of what our own device plugin has written."""


class Given(Enum):
    """What is known of one class and one container."""

    CARDS = "cards"
    NONE = "none"
    UNKNOWN = "unknown"
    """No source could tell."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a container was given of one class."""

    given: Given
    ids: tuple[str, ...] = ()
    """Of the cards, in the order of the source; empty where the source knows of cards, but not which."""
    source: str = ""
    """The source of the evidence."""
    shares: tuple["Share", ...] = field(default=(), compare=False)
    """What was allocated by the names that the kubelet uses, as far as the evidence has them."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a container was given of one resource."""

    resource: str
    """With its domain."""
    ids: tuple[str, ...]
    """As the kubelet asked its device plugin for them, replicas with their numbers."""
    source: str
    """The source that names them."""


Evidence = Mapping[str, Allocation]
"""By the name of the class."""
_NONE = Stock()
NOBODY_TELLS = Allocation(Given.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A container, by the names under which the kubelet allocates."""

    sandbox_id: str
    pod_uid: str
    namespace: str
    pod: str
    container: str = ""
    """Empty: all of the pod's."""


@dataclass(frozen=True, slots=True)
class Known:
    """What one source says of one container."""

    source: str
    resources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids as the device plugin named them, by resource."""
    complete: bool = False
    """Whether what is not in it was not allocated."""
    near: Mapping[str, CpuSet] = field(default_factory=dict)
    """By id, the NUMA nodes next to it, as far as its device plugin reports them."""
    certain: bool = True
    """False: this may be about a former pod of that name."""


class Source(Protocol):
    """Something beside the request that knows allocations, such as the kubelet's podresources."""

    async def prefetch(self, pod: Subject) -> None:
        """A pod's sandbox is being made: its containers will be asked for soon. Must not fail."""
        ...

    async def known(self, container: Subject) -> Known | None:
        """What *container* was given; None where that is unknown. Must neither fail nor take long."""
        ...

    def sandboxes(self) -> set[str]:
        """Those of which something is kept, until `forget`."""
        ...

    def forget(self, sandbox_id: str) -> None:
        """A sandbox is gone: its containers will not be asked for again."""
        ...

    async def close(self) -> None:
        """It is not needed any more; later questions get the answer that nothing is known."""
        ...


def weigh(classes: Iterable[DeviceClass], asked: Asked, known: Sequence[Known], stocks: Stocks) -> Evidence:
    """What a container was given.

    Args:
        classes: those that matter.
        asked: its create: our own annotation, CDI names and device nodes are evidence, too.
        known: what the sources say, the most trusted one first.
        stocks: the machine's cards.
    """
    foreign = _foreign_cdi(classes := tuple(classes), asked)
    own = _by_class(classes, asked, stocks)
    ours = {share.resource for shares in own.values() for share in shares}
    answers = [_beside(ours, each) for each in known if each.resources or each.complete]
    return {
        kind.name: _weigh(kind, asked, own.get(kind.name, ()), answers, stocks.get(kind.name, _NONE), foreign)
        for kind in classes
    }


def has_new_card(classes: Iterable[DeviceClass], asked: Asked, evidence: Evidence, stocks: Stocks) -> bool:
    """Whether a container was given a card whose nodes or CDI specification are not among the known *stocks*.

    Drivers make nodes at their first use, and specifications for claims.
    """
    for kind in classes:
        stock = stocks.get(kind.name, _NONE)
        cdi = {name for name in asked.cdi if kind.cdi_device(name) is not None}
        if kind.hide_value and not cdi <= stock.cdi_sets.keys():
            return True
        cards = [stock.card(kind, each) for each in evidence[kind.name].ids if kind.per_device]
        if not all(card and card.nodes for card in cards):
            return True
    return False


def without_nodes(classes: Iterable[DeviceClass], evidence: Evidence, nodes: Sequence[str]) -> list[str]:
    """The classes of which a container was given cards, and of whose cards no device node is among its *nodes*."""
    return [
        kind.name
        for kind in classes
        if kind.per_device
        and evidence[kind.name].given is Given.CARDS
        and not any(kind.is_card_node(path) for path in nodes)
    ]


def own_annotations(annotations: Mapping[str, str]) -> Known:
    """What our own device plugin has written; it says nothing of other plugins."""
    resources: dict[str, tuple[str, ...]] = {}
    for key, value in annotations.items():
        domain, _, name = key.removeprefix(ANNOTATION).partition("_")
        if key.startswith(ANNOTATION) and domain and name:  # others, such as that of a profile, name no resource
            resources[f"{domain}/{name}"] = tuple(filter(None, map(str.strip, value.split(","))))
    return Known(OWN, resources)


def _by_class(classes: Sequence[DeviceClass], asked: Asked, stocks: Stocks) -> dict[str, list[Share]]:
    """What our own device plugin has given, by the name of the class."""
    found: dict[str, list[Share]] = {}
    own, nodes = own_annotations(asked.annotations), [device.host_path for device in asked.devices]
    for resource, ids in own.resources.items():
        if ids and (kind := class_of(classes, resource, ids, stocks, nodes)):
            found.setdefault(kind.name, []).append(Share(resource, ids, own.source))
    return found


def _beside(ours: AbstractSet[str], known: Known) -> Known:
    """What a source says; of a resource that our own plugin names, whichever class has it now, it does not count."""
    left = {name: ids for name, ids in known.resources.items() if name not in ours}
    return known if len(left) == len(known.resources) else replace(known, resources=left)


def _weigh(
    kind: DeviceClass, asked: Asked, own: Sequence[Share], answers: Sequence[Known], stock: Stock, foreign_cdi: bool
) -> Allocation:
    sure, doubtful = [each for each in answers if each.certain], [each for each in answers if not each.certain]
    if allocated := _allocated(kind, own, sure):
        return allocated
    if devices := [device for name in asked.cdi if (device := kind.cdi_device(name)) is not None]:
        return Allocation(Given.CARDS, _of_cdi(kind, devices, stock), "cdi")
    if numbers := numbers_of_nodes(kind, asked, stock):
        names = {card.number: card.id for card in stock.cards}
        ids = tuple(names.get(number) or _as_id(kind, number) for number in numbers)
        return Allocation(Given.CARDS, tuple(filter(None, ids)) if all(ids) else (), "nodes")
    if complete := next((each for each in sure if each.complete), None):
        return Allocation(Given.NONE, source=complete.source)
    if _traces(kind, asked):
        return _in_doubt(kind, doubtful)
    # Plugins of such a class leave a trace: where there is none, none of them gave anything.
    return Allocation(Given.UNKNOWN if foreign_cdi else Given.NONE, source="cdi" if foreign_cdi else "request")


def _allocated(kind: DeviceClass, own: Sequence[Share], answers: Sequence[Known]) -> Allocation | None:
    """What our plugin and others have given."""
    theirs: Sequence[Share] = ()
    for each in answers:
        told = [(name, ids) for name, ids in each.resources.items() if kind.serves(name)]
        if kind.physical(one for _, ids in told for one in ids):
            theirs = [Share(name, ids, each.source) for name, ids in told if ids]
            break
    shares = (*own, *theirs)
    # The separator of a class is that of its own plugins: ours has one for all, and ids that may contain the other.
    cards = [*(card_of(one) for share in own for one in share.ids)]
    cards += kind.physical(one for share in theirs for one in share.ids)
    return Allocation(Given.CARDS, unique(filter(None, cards)), shares[0].source, shares) if any(cards) else None


def _in_doubt(kind: DeviceClass, answers: Sequence[Known]) -> Allocation:
    """What follows from *answers* that may be about another pod, for a container that asks for cards."""
    if not answers:
        return NOBODY_TELLS
    ids = kind.physical(_ids(kind, answers[0]))
    return Allocation(Given.CARDS if ids else Given.NONE, ids, answers[0].source)


def _ids(kind: DeviceClass, known: Known) -> Iterator[str]:
    for resource, ids in known.resources.items():
        if kind.serves(resource):
            yield from ids


def _of_cdi(kind: DeviceClass, devices: Sequence[str], stock: Stock) -> tuple[str, ...]:
    """The ids of CDI devices; none if one of them names no single card, such as ``all``."""
    found = [
        (card.id or device) if (card := stock.card(kind, device)) else own_word(kind, device) for device in devices
    ]
    return kind.physical(found) if all(found) else ()


def numbers_of_nodes(kind: DeviceClass, asked: Asked, stock: Stock) -> list[int]:
    """The cards whose nodes the request has; plugins put them there, and users cannot."""
    if not asked.devices:
        return []
    found = (kind.card_number(device.host_path) for device in asked.devices)
    # Vendors share paths: where the machine was looked at, a node is that of the card that is there.
    ours = {card.number for card in stock.cards}
    return [number for number in dict.fromkeys(found) if number is not None and (not ours or number in ours)]


def _as_id(kind: DeviceClass, number: int) -> str:
    return str(number) if kind.id_format == "index" else ""


def _traces(kind: DeviceClass, asked: Asked) -> bool:
    """Whether something in the request may come from one of the class's device plugins."""
    hidden = kind.hide_value.encode()
    written = kind.visible_env if kind.write_env else ""
    variables = (env.value for env in asked.envs if env.name == written) if written else ()
    return any(value != hidden for value in variables) or any(
        kind.asked_by_mount(mount.container_path) is not None for mount in asked.mounts
    )


def _foreign_cdi(classes: Sequence[DeviceClass], asked: Asked) -> bool:
    """Whether a CDI device is of no class: its contents are unknown."""
    return any(
        all(kind.cdi_device(name) is None and not kind.is_beside_cards(name) for kind in classes) for name in asked.cdi
    )
