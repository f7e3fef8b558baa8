"""Unhealthy cards and the containers that use them, as values that JSON can say: for `devices` and `status`."""

from collections.abc import Iterator

from criproxy.model.incident import Action, Incident, Use
from criproxy.model.node import Node
from criproxy.model.notices import Values, timestamp
from criproxy.model.workload import Container, ContainerState


def told(node: Node) -> list[Values]:
    """All incidents that go on, the oldest first."""
    going_on = sorted((each for each in node.incidents.values() if not each.ended), key=lambda each: each.since_s)
    return [
        {
            "class": incident.device_class,
            "card": incident.card,
            "since": timestamp(incident.since_s),
            "reason": incident.reason,
            "action": incident.action.value,
            "containers": users(node, incident),
        }
        for incident in going_on
    ]


def users(node: Node, incident: Incident) -> list[Values]:
    """The containers that use the card, or did until they were stopped."""
    return [
        {
            "id": "" if container.key == container.reservation else container.key,
            "namespace": container.namespace,
            "pod": container.pod_name,
            "container": container.name,
            "state": container.state.value,
            "use": use.value,
        }
        for container, use in _users(node, incident)
    ]


def unhealthy_in_use(node: Node) -> Iterator[str]:
    """A sentence for each unhealthy card that a container uses."""
    for incident in node.incidents.values():
        living = [(c.title, use) for c, use in _users(node, incident) if c.state is not ContainerState.EXITED]
        if living and not incident.ended:
            names = ", ".join(title for title, _ in living[:_NAMED])
            more = f" and {len(living) - _NAMED} more" if len(living) > _NAMED else ""
            since = timestamp(incident.since_s)
            text = f"{incident.device_class}: card {incident.card} is unhealthy since {since} ({incident.reason})"
            stopping = ", and criproxy stops them" if _stops(incident, [use for _, use in living]) else ""
            yield f"{text}, and used by {names}{more}{stopping}"


_NAMED = 5


def _stops(incident: Incident, uses: list[Use]) -> bool:
    return incident.action is Action.STOP and Use.STOPPING in uses


def _users(node: Node, incident: Incident) -> list[tuple[Container, Use]]:
    return [
        (container, incident.containers[container.life])
        for container in (node.containers.values() if incident.containers else ())
        if container.life in incident.containers
    ]
