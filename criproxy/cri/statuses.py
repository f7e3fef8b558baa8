"""Statuses of containers in replies: finds and changes them, such as to say the quota that was asked for."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
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
    return changed(name, message, (_LIFTED,), partial(_told, asked=asked))


def changed(
    name: str, message: bytes, marks: Iterable[bytes], change: Callable[[api.ContainerStatus], bool]
) -> bytes | None:
    """The reply *message* of the method *name* with other statuses; None where none is another one.

    Args:
        name: of one of `STATUSES`.
        message: as the runtime sent it.
        marks: bytes, such as ids, without any of which no status changes.
        change: changes a status in place, and says whether it did.

    Raises:
        UnreadableMessage: if it is no such reply.
    """
    if not any(mark in message for mark in marks):
        return None
    reply = translate.read(METHODS[name].reply, message)
    told = [change(status) for status in STATUSES[name](reply)]
    return reply.SerializeToString() if any(told) else None


def _told(status: api.ContainerStatus, asked: Asked) -> bool:
    quota = asked(status) if translate.lifted(status) else None
    if quota is not None:
        rewrite.tell_quota(status, quota)
    return quota is not None
