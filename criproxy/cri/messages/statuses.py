"""Finds and changes statuses of containers in replies, for example to show the requested quota."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from criproxy.cri import api_pb2 as api
from criproxy.cri.messages import rewrite, translate
from criproxy.cri.methods.methods import METHODS
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
"""Returns the requested quota for the container of a status; None if the status stays unchanged."""

_LIFTED = api.LinuxContainerResources(cpu_quota=LIFTED_US).SerializeToString()
"""Bytes of every message with a lifted quota; few others have them, so most need not be decoded."""


def as_asked(name: str, message: bytes, asked: Asked) -> bytes | None:
    """Return the reply *message* of the method *name* with the requested quotas; None if it is unchanged.

    Raises:
        UnreadableMessage: if it is no such reply.
    """
    return changed(name, message, (_LIFTED,), partial(_show_asked, asked=asked))


def changed(
    name: str, message: bytes, marks: Iterable[bytes], change: Callable[[api.ContainerStatus], bool]
) -> bytes | None:
    """Return the reply *message* of the method *name* with changed statuses; None if none changes.

    Args:
        name: of one of `STATUSES`.
        message: as the runtime sent it.
        marks: bytes, such as ids, without any of which no status changes.
        change: changes a status in place, and returns whether it did.

    Raises:
        UnreadableMessage: if it is no such reply.
    """
    if not any(mark in message for mark in marks):
        return None
    reply = translate.read(METHODS[name].reply, message)
    results = [change(status) for status in STATUSES[name](reply)]
    return reply.SerializeToString() if any(results) else None


def _show_asked(status: api.ContainerStatus, asked: Asked) -> bool:
    quota = asked(status) if translate.lifted(status) else None
    if quota is not None:
        rewrite.show_quota(status, quota)
    return quota is not None
