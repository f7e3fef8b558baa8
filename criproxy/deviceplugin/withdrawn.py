"""A resource that is offered no more: its ids are listed only until containers have given them back."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from criproxy.deviceplugin.resource import Resource
from criproxy.devices.allocation import InvalidRequest, Response


@dataclass(frozen=True, slots=True)
class _Withdrawn:
    """Answers for it."""

    resource: str

    def allocate(self, requests: Iterable[Collection[str]]) -> tuple[Response, ...]:
        raise InvalidRequest(f'invalid allocation request for "{self.resource}": it is no longer offered')


def withdrawn(name: str, before: Resource | None) -> Resource:
    """The resource *name*, of which nothing is offered any more.

    It wants the same calls as *before*: the kubelet learns of others only by a new registration.
    """
    allocator = _Withdrawn(name)
    return replace(before or Resource(name=name, allocator=allocator), devices={}, allocator=allocator)
