"""A resource that is no longer offered: its IDs are listed only until containers no longer have them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from criproxy.deviceplugin.server.resource import Resource
from criproxy.devices.evidence.allocation import InvalidRequest, Response


@dataclass(frozen=True, slots=True)
class _Withdrawn:
    """Rejects all requests."""

    resource: str

    def allocate(self, requests: Iterable[Collection[str]]) -> tuple[Response, ...]:
        raise InvalidRequest(f'invalid allocation request for "{self.resource}": it is no longer offered')


def withdrawn(name: str, before: Resource | None) -> Resource:
    """Return the resource *name* with nothing to offer.

    It asks for the same calls as *before*: the kubelet reads those options only at a registration.
    """
    allocator = _Withdrawn(name)
    return replace(before or Resource(name=name, allocator=allocator), devices={}, allocator=allocator)
