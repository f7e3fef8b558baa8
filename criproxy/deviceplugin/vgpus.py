"""The vGPUs of the machine's cards: what profiles cut, and what is left to be offered otherwise."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from posixpath import join
from typing import Protocol

from criproxy.deviceplugin.inventory import Inventory
from criproxy.deviceplugin.mig_vgpus import Parts, mig_vgpus, size_of
from criproxy.deviceplugin.offering import Configuration, Said
from criproxy.deviceplugin.pins import Pins
from criproxy.deviceplugin.resource import Allocator
from criproxy.devices.allocation import InvalidRequest, Response
from criproxy.devices.cards import card_id
from criproxy.devices.cutting import cut
from criproxy.devices.enforcement import Makers, Missing, enforced_by, with_enforcement
from criproxy.devices.offers import Offered, Offers
from criproxy.devices.plan import Advertised
from criproxy.devices.vgpus import CardSize, Profile, Vgpu, annotations_of
from criproxy.nvidia.nodes import gpu_paths
from criproxy.nvidia.resources import ResourceError, shown

_MEMORY_UNKNOWN = "only the driver knows the memory of NVIDIA's GPUs: the device plugin checks the profiles at startup"


def vgpus_of(
    advertised: Advertised, config: Configuration, inventory: Inventory, said: Said, pins: Pins | None
) -> tuple[Offers, Inventory]:
    """The vGPUs of a class, by resource, and the *inventory* without what they are made of: cards and MIG devices.

    A card in a contradiction is not offered at all: offered whole, it would give a container more than its quota.

    Args:
        advertised: the class.
        config: what the files say.
        inventory: the machine.
        said: gets contradictions.
        pins: which cards there were before; None: a contradiction is an error.

    Raises:
        ResourceError: without *pins*: the profiles and the cards contradict each other.
    """
    profiles = config.plan.profiles_of(advertised)
    parts, problems, left = dict[str, Mapping[str, Offered]](), list[str](), inventory
    if taking := [each for each in profiles if each.is_mig]:
        found = mig_vgpus(taking, config.nvidia, left, said, pins)
        parts, problems, left = {**found.offers}, [*found.problems], found.left
    if cutting := [each for each in profiles if not each.is_mig]:
        found = _cut(advertised, cutting, left, said, pins)
        parts, problems, left = {**parts, **found.offers}, [*problems, *found.problems], found.left
    if problems and pins is None:
        raise ResourceError("; ".join(problems))
    for problem in problems:
        said.warn(problem)
    return parts, left


def _cut(
    advertised: Advertised, profiles: Sequence[Profile], inventory: Inventory, said: Said, pins: Pins | None
) -> Parts:
    """The vGPUs into which *profiles* cut whole cards."""
    cards = _nvidia_cards(inventory) if advertised.is_nvidia else _class_cards(advertised, inventory)
    sizes = [card.size for card in cards]
    found = cut(sizes if pins is None else pins.sizes(advertised.kind.name, sizes), profiles)
    problems = found.problems
    if advertised.is_nvidia and not inventory.nvml_asked:
        problems = tuple(each for each in problems if each not in found.undecided)
        if cards and any(each.memory_mib or each.memory_percent for each in profiles):
            said.warn(_MEMORY_UNKNOWN)
    by_id = {card.size.id: card for card in cards}
    offers = {
        profile.resource: {
            each.id: by_id[each.card].offered(each) for each in found.vgpus[profile.name] if each.card in by_id
        }
        for profile in profiles
    }
    left = _without(inventory, advertised, {card.size.id for card in cards} - {*found.whole})
    offers = {resource: parts for resource, parts in offers.items() if parts}
    return Parts(offers=offers, left=left, problems=problems)


@dataclass(frozen=True, slots=True)
class _Card:
    """A card that may be cut."""

    size: CardSize
    paths: tuple[str, ...]
    numa_node: int | None

    def offered(self, vgpu: Vgpu) -> Offered:
        """One of its parts."""
        return Offered(id=vgpu.id, index=str(self.size.index), paths=self.paths, numa_node=self.numa_node, vgpu=vgpu)


def _nvidia_cards(inventory: Inventory) -> list[_Card]:
    """Those without MIG: a card with MIG is divided already."""
    return [_Card(size_of(gpu), gpu_paths(gpu), gpu.numa_node) for gpu in shown(inventory.gpus) if not gpu.mig_enabled]


def _class_cards(advertised: Advertised, inventory: Inventory) -> list[_Card]:
    """Of a class that is not NVIDIA's: nobody knows their memory."""
    kind = advertised.kind
    return [
        _Card(
            CardSize(id=card_id(kind, card), index=card.number, model="", memory_mib=0),
            card.nodes,
            card.numa_node if card.numa_node >= 0 else None,
        )
        for card in inventory.stock(kind).cards
    ]


def _without(inventory: Inventory, advertised: Advertised, cards: set[str]) -> Inventory:
    if advertised.is_nvidia:
        return replace(inventory, gpus=tuple(gpu for gpu in inventory.gpus if gpu.uuid not in cards))
    kind = advertised.kind
    stock = inventory.stock(kind)
    left = replace(stock, cards=tuple(card for card in stock.cards if card_id(kind, card) not in cards))
    return replace(inventory, stocks={**inventory.stocks, kind.name: left})


class VgpuHost(Protocol):
    """The files of the host that vGPUs need; both may block."""

    def exists(self, path: str) -> bool:
        """Whether a path is there."""
        ...

    def prepare(self, own: str, shared: str) -> None:
        """Make two folders for containers.

        Args:
            own: of one container; it gets a new one, since the former container may have left anything in it.
            shared: of all.

        Raises:
            OSError: that cannot be done.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuAllocator:
    """Answers Allocate for the vGPUs of one profile: a container gets one, with its quota in annotations."""

    profile: Profile
    makers: Makers
    host: VgpuHost
    offered: Mapping[str, Offered]
    whole: Allocator
    """Answers for the cards themselves."""

    @property
    def resource(self) -> str:
        """With its domain."""
        return self.profile.resource

    def allocate(self, requests: Sequence[Sequence[str]]) -> Sequence[Response]:
        """What containers get, each by its ids.

        Raises:
            InvalidRequest: one of them cannot be served, and so none is.
        """
        vgpus = list(self._vgpus(requests))
        responses = self.whole.allocate(requests)
        return [self._limited(response, vgpu) for response, vgpu in zip(responses, vgpus, strict=True)]

    def _limited(self, response: Response, vgpu: Vgpu) -> Response:
        """With the quota, and what enforces it."""
        try:
            if "hami-core" in self.profile.enforce:
                paths = self.makers.hami
                self.host.prepare(join(paths.containers, vgpu.file_name), paths.lock)
            found = enforced_by(self.profile, vgpu, self.makers, self.host.exists)
        except Missing as error:
            raise self._invalid(str(error)) from error
        except OSError as error:
            raise self._invalid(f"{error.filename}: {error.strerror}") from error
        annotations = {**response.annotations, **annotations_of(vgpu)}
        return with_enforcement(replace(response, annotations=annotations), found)

    def _vgpus(self, requests: Sequence[Sequence[str]]) -> Iterator[Vgpu]:
        for ids in requests:
            if len(ids) != 1:
                raise self._invalid(f"a container can have one vGPU; found {len(ids)}")
            offered = self.offered.get(ids[0])
            if offered is None or offered.vgpu is None:
                raise self._invalid(f"unknown device: {ids[0]}")
            yield offered.vgpu

    def _invalid(self, text: str) -> InvalidRequest:
        return InvalidRequest(f'invalid allocation request for "{self.resource}": invalid request: {text}')
