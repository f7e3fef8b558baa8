"""What the status of a container says of an incident: why criproxy has ended it, or what it is to be told of.

The kubelet shows reason and message of containers that have ended, and of no others; annotations it leaves alone.
"""

from criproxy.cri import api_pb2 as api
from criproxy.model.incident import KILL_S, Action, Incident, Use

UNHEALTHY = "DeviceUnhealthy"
"""The reason where a card has failed."""
UNHEALTHY_ANNOTATION = "devices.criproxy.io/unhealthy"
QUOTA_ANNOTATION = "devices.criproxy.io/over-quota"
"""Of a status, where containers are only told of."""
_NS = 1_000_000_000


def mark(status: api.ContainerStatus, incident: Incident, use: Use) -> None:
    """Say in the *status* of a container what the *incident* has to do with it."""
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
