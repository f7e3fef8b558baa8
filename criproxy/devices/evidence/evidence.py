"""Concludes from the evidence of all sources which cards of each class are allocated to a container.

The answer is one of three: these cards, none, or unknown; the difference between the last two matters. A variable is
never evidence, since a pod's own variables are in the same list as those of a device plugin.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum

from criproxy.devices.classes.cards import NO_CARDS, Stock, Stocks
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import card_of, unique
from criproxy.devices.evidence.device_request import ANNOTATION, DeviceRequest
from criproxy.devices.evidence.own_resources import class_of, own_word
from criproxy.model.cpuset import CpuSet

OWN = "annotation"
"""The source of the evidence from our own device plugin."""


class Given(Enum):
    """What is known about one container and one class."""

    CARDS = "cards"
    NONE = "none"
    UNKNOWN = "unknown"
    """No source has an answer."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation of one class to a container."""

    given: Given
    ids: tuple[str, ...] = ()
    """The ids of the cards, in the order of the source; empty if the source does not know which cards they are."""
    source: str = ""
    """The source of the evidence."""
    shares: tuple["Share", ...] = field(default=(), compare=False)
    """The allocation by the names that the kubelet uses, as far as the evidence has them."""


@dataclass(frozen=True, slots=True)
class Share:
    """The allocation of one resource to a container."""

    resource: str
    """With its domain."""
    ids: tuple[str, ...]
    """The ids that the kubelet requested from the device plugin, replicas with their numbers."""
    source: str
    """The source of the ids."""


Evidence = Mapping[str, Allocation]
"""The allocations, by the name of the class."""
UNKNOWN_ALLOCATION = Allocation(Given.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A container, by the names that identify the kubelet's allocations."""

    sandbox_id: str
    pod_uid: str
    namespace: str
    pod: str
    container: str = ""
    """Empty: all containers of the pod."""


@dataclass(frozen=True, slots=True)
class Known:
    """The answer of one source about one container."""

    source: str
    resources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The device plugin's ids, by resource."""
    complete: bool = False
    """Whether nothing else is allocated."""
    near: Mapping[str, CpuSet] = field(default_factory=dict)
    """By id, the closest NUMA nodes, as far as the device plugin reports them."""
    certain: bool = True
    """False: the answer may be about a former pod of that name."""
    by_uid: bool = False
    """Whether a source that identifies pods by their UIDs confirms the answer."""


def weigh(classes: Iterable[DeviceClass], asked: DeviceRequest, known: Sequence[Known], stocks: Stocks) -> Evidence:
    """Conclude which cards are allocated to a container.

    Args:
        classes: the classes of interest.
        asked: the create request: our own annotation, CDI names and device nodes are also evidence.
        known: the answers of the sources, the most trusted one first.
        stocks: the machine's cards.
    """
    foreign = _foreign_cdi(classes := tuple(classes), asked)
    own = _by_class(classes, asked, stocks)
    ours = {share.resource for shares in own.values() for share in shares}
    answers = [_beside(ours, each) for each in known if each.resources or each.complete]
    return {
        kind.name: _weigh(kind, asked, own.get(kind.name, ()), answers, stocks.get(kind.name, NO_CARDS), foreign)
        for kind in classes
    }


def has_new_card(classes: Iterable[DeviceClass], asked: DeviceRequest, evidence: Evidence, stocks: Stocks) -> bool:
    """Whether *stocks* lacks the device nodes or the CDI specification of a card that is allocated to a container.

    Drivers create device nodes at their first use, and specifications for claims.
    """
    for kind in classes:
        stock = stocks.get(kind.name, NO_CARDS)
        cdi = {name for name in asked.cdi if kind.cdi_device(name) is not None}
        if kind.hide_value and not cdi <= stock.cdi_sets.keys():
            return True
        cards = [stock.card(kind, each) for each in evidence[kind.name].ids if kind.per_device]
        if not all(card and card.nodes for card in cards):
            return True
    return False


def without_nodes(classes: Iterable[DeviceClass], evidence: Evidence, nodes: Sequence[str]) -> list[str]:
    """Return the classes with cards allocated to a container that has none of their device nodes among its *nodes*."""
    return [
        kind.name
        for kind in classes
        if kind.per_device
        and evidence[kind.name].given is Given.CARDS
        and not any(kind.is_card_node(path) for path in nodes)
    ]


def own_annotations(annotations: Mapping[str, str]) -> Known:
    """Return the evidence from our own device plugin, which says nothing about other plugins."""
    resources: dict[str, tuple[str, ...]] = {}
    for key, value in annotations.items():
        domain, _, name = key.removeprefix(ANNOTATION).partition("_")
        if key.startswith(ANNOTATION) and domain and name:  # other annotations, such as the profile, name no resource
            resources[f"{domain}/{name}"] = tuple(filter(None, map(str.strip, value.split(","))))
    return Known(OWN, resources)


def believed(annotations: Mapping[str, str], known: Known) -> Mapping[str, str]:
    """Return the *annotations* of a listed container, without ours if the kubelet has not allocated what they claim.

    cri-dockerd lists labels of images as annotations: there, an image can claim devices, but not in a create.
    """
    claims = own_annotations(annotations).resources.items()
    is_sure = known.certain and known.complete and known.by_uid
    if not is_sure or all(set(ids) <= set(known.resources.get(resource, ())) for resource, ids in claims):
        return annotations
    return {key: value for key, value in annotations.items() if not key.startswith(ANNOTATION)}


def _by_class(classes: Sequence[DeviceClass], asked: DeviceRequest, stocks: Stocks) -> dict[str, list[Share]]:
    """Return what our own device plugin has allocated, by the name of the class."""
    found: dict[str, list[Share]] = {}
    own, nodes = own_annotations(asked.annotations), [device.host_path for device in asked.devices]
    for resource, ids in own.resources.items():
        if ids and (kind := class_of(classes, resource, ids, stocks, nodes)):
            found.setdefault(kind.name, []).append(Share(resource, ids, own.source))
    return found


def _beside(ours: AbstractSet[str], known: Known) -> Known:
    """Return what a source reports without the resources that our own plugin names, whichever class has them now."""
    left = {name: ids for name, ids in known.resources.items() if name not in ours}
    return known if len(left) == len(known.resources) else replace(known, resources=left)


def _weigh(
    kind: DeviceClass,
    asked: DeviceRequest,
    own: Sequence[Share],
    answers: Sequence[Known],
    stock: Stock,
    foreign_cdi: bool,
) -> Allocation:
    sure, doubtful = [each for each in answers if each.certain], [each for each in answers if not each.certain]
    if allocated := _allocated(kind, own, sure):
        return allocated
    if devices := [device for name in asked.cdi if (device := kind.cdi_device(name)) is not None]:
        return Allocation(Given.CARDS, _of_cdi(kind, devices, stock), "cdi")
    if numbers := numbers_of_nodes(kind, asked, stock):
        names = {card.number: card.id for card in stock.cards}
        ids = tuple(names.get(number) or (str(number) if kind.id_format == "index" else "") for number in numbers)
        return Allocation(Given.CARDS, tuple(filter(None, ids)) if all(ids) else (), "nodes")
    if complete := next((each for each in sure if each.complete), None):
        return Allocation(Given.NONE, source=complete.source)
    if _traces(kind, asked):
        return _in_doubt(kind, doubtful)
    # Plugins of such a class leave a trace: without one, none of them has allocated anything.
    return Allocation(Given.UNKNOWN if foreign_cdi else Given.NONE, source="cdi" if foreign_cdi else "request")


def _allocated(kind: DeviceClass, own: Sequence[Share], answers: Sequence[Known]) -> Allocation | None:
    """Return what our plugin and others have allocated."""
    theirs: Sequence[Share] = ()
    for each in answers:
        reported = [(name, ids) for name, ids in each.resources.items() if kind.serves(name)]
        if kind.physical(one for _, ids in reported for one in ids):
            theirs = [Share(name, ids, each.source) for name, ids in reported if ids]
            break
    shares = (*own, *theirs)
    # The separator of a class is that of its vendor's plugins; ours has one for all, and its ids may contain the other.
    cards = [*(card_of(one) for share in own for one in share.ids)]
    cards += kind.physical(one for share in theirs for one in share.ids)
    return Allocation(Given.CARDS, unique(filter(None, cards)), shares[0].source, shares) if any(cards) else None


def _in_doubt(kind: DeviceClass, answers: Sequence[Known]) -> Allocation:
    """Return the allocation that follows from *answers* that may be about another pod."""
    if not answers:
        return UNKNOWN_ALLOCATION
    ids = kind.physical(one for name, ids in answers[0].resources.items() if kind.serves(name) for one in ids)
    return Allocation(Given.CARDS if ids else Given.NONE, ids, answers[0].source)


def _of_cdi(kind: DeviceClass, devices: Sequence[str], stock: Stock) -> tuple[str, ...]:
    """Return the ids of CDI devices; none if one of them does not name a single card, such as ``all``."""
    found = [(card.id or each) if (card := stock.card(kind, each)) else own_word(kind, each) for each in devices]
    return kind.physical(found) if all(found) else ()


def numbers_of_nodes(kind: DeviceClass, asked: DeviceRequest, stock: Stock) -> list[int]:
    """Return the numbers of the cards whose device nodes the request has; plugins can add these, and users cannot."""
    if not asked.devices:
        return []
    found = (kind.card_number(device.host_path) for device in asked.devices)
    # Vendors share paths: if the machine was scanned, a node belongs to the class of the card that exists.
    ours = {card.number for card in stock.cards}
    return [number for number in dict.fromkeys(found) if number is not None and (not ours or number in ours)]


def _traces(kind: DeviceClass, asked: DeviceRequest) -> bool:
    """Whether the request has an entry that one of the class's device plugins may have added."""
    hidden = kind.hide_value.encode()
    written = kind.visible_env if kind.write_env else ""
    variables = (env.value for env in asked.envs if env.name == written) if written else ()
    mounts = (kind.asked_by_mount(mount.container_path) for mount in asked.mounts)
    return any(value != hidden for value in variables) or any(name is not None for name in mounts)


def _foreign_cdi(classes: Sequence[DeviceClass], asked: DeviceRequest) -> bool:
    """Whether a CDI device belongs to no class, so that its contents are unknown."""
    known = {name for kind in classes for name in (*kind.cdi_kinds, *kind.cdi_beside)} if asked.cdi else ()
    return any(name.partition("=")[0] not in known for name in asked.cdi)
