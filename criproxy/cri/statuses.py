"""Resources of containers in replies: writes what was asked for in place of what is in force."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from criproxy.cri import api_pb2 as api
from criproxy.cri import rewrite, translate
from criproxy.cri.methods import METHODS
from criproxy.model.resources import LIFTED_US, CfsQuota

STATUSES: Mapping[str, Callable[[Any], Iterable[api.ContainerStatus]]] = MappingProxyType(
    {
        "ContainerStatus": lambda reply: [reply.status],
        "PodSandboxStatus": lambda reply: reply.containers_statuses,
        "GetContainerEvents": lambda event: event.containers_statuses,
    }
)
"""Short name of each method whose replies do → the statuses in one reply."""

Asked = Callable[[api.ContainerStatus], CfsQuota | None]
"""The quota that was asked for the container of a status; None where the status stays as it is."""

_LIFTED = api.LinuxContainerResources(cpu_quota=LIFTED_US).SerializeToString()
"""Bytes of every message with a lifted quota; few others have them, so most need not be decoded."""


def as_asked(name: str, message: bytes, asked: Asked) -> bytes | None:
    """The reply *message* of the method *name* with quotas as they were *asked*; None if it says so already.

    Raises:
        UnreadableMessage: if it is no such reply.
    """
    if _LIFTED not in message:
        return None
    reply = translate.read(METHODS[name].reply, message)
    told = [_told(status, asked) for status in STATUSES[name](reply)]
    return reply.SerializeToString() if any(told) else None


def _told(status: api.ContainerStatus, asked: Asked) -> bool:
    quota = asked(status) if translate.lifted(status) else None
    if quota is not None:
        rewrite.tell_quota(status, quota)
    return quota is not None
