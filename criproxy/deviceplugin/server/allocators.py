"""Allocators and the preference of a resource: what containers get, and which cards the kubelet should allocate."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from criproxy.deviceplugin.nvidia.preference import PairScores, Request, UnknownGpu, preferred
from criproxy.deviceplugin.server.resource import Allocator
from criproxy.devices.classes.cards import Stock
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import Offered, is_replica, unique
from criproxy.devices.evidence.allocation import InvalidRequest, Response, joined, of_class
from criproxy.devices.plugin.preference import NotEnoughOffered, Spread, slots

FreeCpus = Callable[[], Mapping[int, int]]
"""Returns the free CPU of each NUMA node in thousandths of a CPU, as the daemon reports it; called in a thread."""

MANY_CARDS = 128
"""With more IDs, links between cards do not count: replicas have none, and no machine has so many cards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassAllocator:
    """Allocator for the cards of a class other than NVIDIA's."""

    resource: str
    kind: DeviceClass
    stock: Stock
    offered: Mapping[str, Offered]
    only_one: bool = False
    """Whether a container can get at most one replica."""

    def allocate(self, requests: Sequence[Sequence[str]]) -> Sequence[Response]:
        """Return what each container gets for its IDs.

        Raises:
            InvalidRequest: One of the requests cannot be served; then none is.
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
class EvidenceAllocator:
    """Adds to each response of *allocator* the evidence that the proxy trusts before all other."""

    resource: str
    allocator: Allocator

    def allocate(self, requests: Sequence[Sequence[str]]) -> Sequence[Response]:
        """Return what each container gets for its IDs.

        Raises:
            InvalidRequest: One of the requests cannot be served.
        """
        responses = self.allocator.allocate(requests)
        return [joined(each, self.resource, ids) for each, ids in zip(responses, requests, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPreference:
    """Preference for linked cards by `nvidia.preference.preferred`, which all classes use."""

    resource: str
    offered: Mapping[str, Offered]
    spread: Spread
    scores: Callable[[], PairScores]
    """Returns how closely cards are linked; called in the thread that needs it."""
    free_cpus: FreeCpus

    def __call__(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """Return the IDs to allocate; see `resource.Preference`.

        Raises:
            InvalidRequest: The request cannot be satisfied.
        """
        request = Request(available=tuple(available), required=tuple(required), size=size)
        try:
            if len(self.offered) > MANY_CARDS:  # the number of pairs would be too large
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
