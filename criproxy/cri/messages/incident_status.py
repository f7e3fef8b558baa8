"""Writes an incident into the status of a container: why criproxy has stopped it, or an annotation.

The kubelet shows reason and message only for containers that have ended, and ignores annotations.
"""

from criproxy.cri import api_pb2 as api
from criproxy.model.incident import KILL_S, Action, Incident, Use

UNHEALTHY = "DeviceUnhealthy"
"""The reason if a card is unhealthy."""
UNHEALTHY_ANNOTATION = "devices.criproxy.io/unhealthy"
QUOTA_ANNOTATION = "devices.criproxy.io/over-quota"
"""The annotation in the status of a container without another action."""
_NS = 1_000_000_000


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
