"""Grant → message: writes only the fields that criproxy owns.

These are the fields of the attributes that the grant does not leave alone (`model.attributes`), and the annotation of
`cri.stamp`. Messages are edited in place after parsing: everything else, including unknown fields, stays unchanged.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.methods import METHODS
from criproxy.cri.stamp import ANNOTATION, Stamp
from criproxy.model.attributes import granted, handled
from criproxy.model.grant import Applied, Grant
from criproxy.model.incident import KILL_S, Action, Incident, Use
from criproxy.model.resources import LIFTED_US, CfsQuota
from criproxy.model.workload import Container

UNHEALTHY = "DeviceUnhealthy"
"""The reason if a card is unhealthy."""
UNHEALTHY_ANNOTATION = "devices.criproxy.io/unhealthy"
QUOTA_ANNOTATION = "devices.criproxy.io/over-quota"
"""The annotation in the status of a container without another action."""
_NS = 1_000_000_000
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


def place(request: api.CreateContainerRequest, grant: Grant, container: Container, stamp: Stamp) -> bytes:
    """Write the *grant* of *container*, and the stamp, into *request*."""
    resources, wanted = request.config.linux.resources, granted(grant)
    for each in handled(grant):
        each.create(resources, getattr(wanted, each.name), container)
    request.config.annotations[ANNOTATION] = stamp.to_text()
    return request.SerializeToString()


def update(
    resources: api.LinuxContainerResources,
    wanted: Applied,
    grant: Grant,
    container: Container,
    had: Applied | None = None,
) -> None:
    """Write into an update what is *wanted* for *container* on the way to its *grant*.

    Args:
        resources: those of the kubelet's update, or empty ones: empty fields stay unchanged, and hugepage limits would
            accumulate.
        wanted: the next step.
        grant: the attributes that it leaves alone are not written.
        container: with the limit that the kubelet requested.
        had: what the container has, if that is known: except for its cpuset, only changes are written.
    """
    for each in handled(grant):
        value = getattr(wanted, each.name)
        if value is not None and (each.is_cpuset or had is None or getattr(had, each.name) != value):
            each.update(resources, value, container)


def mark(status: api.ContainerStatus, incident: Incident, use: Use) -> None:
    """Write the *incident* into the *status* of a container, according to *use*."""
    if status.state == api.CONTAINER_EXITED and _has_ended_it(status, incident, use):
        status.reason = incident.excess.reason if incident.excess else UNHEALTHY
        status.message = incident.sentence
    elif incident.action is Action.ANNOTATE and not incident.ended:
        status.annotations[QUOTA_ANNOTATION if incident.excess else UNHEALTHY_ANNOTATION] = incident.sentence


def _has_ended_it(status: api.ContainerStatus, incident: Incident, use: Use) -> bool:
    if use is Use.KILLED and incident.excess:
        after_s = status.finished_at / _NS - incident.excess.acted_s
        return 0 <= after_s <= KILL_S
    return use in (Use.STOPPING, Use.STOPPED)


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
    quota = asked(status) if status.resources.linux.cpu_quota < 0 else None
    if quota is not None:
        status.resources.linux.cpu_quota = quota.quota_us  # the period is unchanged
    return quota is not None
