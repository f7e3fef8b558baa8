"""Who answers the kubelet for one resource: what containers get, and which cards they had best get."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from criproxy.deviceplugin.resource import Allocator
from criproxy.devices.allocation import InvalidRequest, Response, joined, of_class
from criproxy.devices.cards import Stock
from criproxy.devices.classes import DeviceClass
from criproxy.devices.offers import Offered, is_replica, unique
from criproxy.devices.preference import NotEnoughOffered, Spread, slots
from criproxy.nvidia.preference import PairScores, Request, UnknownGpu, preferred

FreeCpus = Callable[[], Mapping[int, int]]
"""How much of its CPUs each NUMA node has free, in thousandths of a CPU, as the daemon tells; called in a thread."""

MANY_CARDS = 128
"""With more ids nobody asks which cards are linked: replicas are not, and no machine has so many cards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassAllocator:
    """Answers Allocate for cards of a class that is not NVIDIA's."""

    resource: str
    kind: DeviceClass
    stock: Stock
    offered: Mapping[str, Offered]
    only_one: bool = False
    """Whether a container gets no more than one replica."""

    def allocate(self, requests: Sequence[Sequence[str]]) -> Sequence[Response]:
        """What containers get, each by its ids.

        Raises:
            InvalidRequest: one of them cannot be served, and so none is.
        """
        return [self._response(ids) for ids in requests]

    def _response(self, ids: Sequence[str]) -> Response:
        if (unknown := next((each for each in ids if each not in self.offered), None)) is not None:
            raise self._invalid(f"unknown device: {unknown}")
        if self.only_one and len(ids) > 1 and any(map(is_replica, ids)):
            raise self._invalid(f"maximum request size for shared resources is 1; found {len(ids)}")
        return of_class(self.kind, self.stock, [self.offered[each] for each in unique(ids)])

    def _invalid(self, text: str) -> InvalidRequest:
        return InvalidRequest(f'invalid allocation request for "{self.resource}": invalid request: {text}')


@dataclass(frozen=True, slots=True)
class Joined:
    """Adds to each answer of *allocator* what the proxy trusts before all other evidence."""

    resource: str
    allocator: Allocator

    def allocate(self, requests: Sequence[Sequence[str]]) -> Sequence[Response]:
        """What containers get, each by its ids.

        Raises:
            InvalidRequest: one of them cannot be served.
        """
        responses = self.allocator.allocate(requests)
        return [joined(each, self.resource, ids) for each, ids in zip(responses, requests, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLinks:
    """Which ids of a resource belong together: `nvidia.preference.preferred`, which other classes share."""

    resource: str
    offered: Mapping[str, Offered]
    spread: Spread
    scores: Callable[[], PairScores]
    """How well cards belong together: called in the thread that needs it."""
    free_cpus: FreeCpus

    def __call__(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """Which ids to allocate; see `resource.Preference`.

        Raises:
            InvalidRequest: the question cannot be answered.
        """
        request = Request(available=tuple(available), required=tuple(required), size=size)
        try:
            if len(self.offered) > MANY_CARDS:  # their pairs would be too many
                return slots(self.offered, available, required, size, self.spread)
            return preferred(
                self.offered,
                request,
                spread=self.spread,
                scores=self.scores(),
                free_cpu_milli=self.free_cpus(),
            )
        except (UnknownGpu, NotEnoughOffered) as error:
            raise InvalidRequest(f"error getting list of preferred allocation devices: {error}") from error
