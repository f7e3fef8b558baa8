"""Unhealthy cards, and containers over their quota, as JSON values: for `devices`, `status` and `explain`."""

from collections.abc import Iterator

from criproxy.api.views.situation import identity
from criproxy.model.incident import Action, Incident, Use
from criproxy.model.node import Node
from criproxy.model.text.notices import Values, timestamp
from criproxy.model.workload import Container, ContainerState

MAX_NAMED = 5
_DONE = {Use.STOPPING: "; it is being stopped", Use.KILLED: "; the watcher was told to kill a process"}


def unhealthy_cards(node: Node) -> list[Values]:
    """Return all unhealthy cards, the oldest incident first."""
    return [
        {
            "class": incident.device_class,
            "card": incident.card,
            "since": timestamp(incident.since_s),
            "reason": incident.reason,
            "action": incident.action.value,
            "containers": users(node, incident),
        }
        for incident in _open(node)
        if incident.excess is None
    ]


def quotas_exceeded(node: Node, life: str = "") -> list[Values]:
    """Return the containers over a quota, the oldest incident first; only the container instance *life*, if given."""
    return [
        {
            "container_id": container.key,
            "namespace": container.namespace,
            "pod": container.pod_name,
            "container": container.name,
            "device_class": incident.device_class,
            "card": incident.card,
            "quantity": incident.excess.quantity.value,
            "used": incident.excess.used,
            "allowed": incident.excess.allowed,
            "since": timestamp(incident.since_s),
            "action": incident.action_word,
            "use": use.value,
            "pid": incident.excess.pid,
            "start_ticks": incident.excess.start_ticks,
        }
        for incident in _open(node)
        for container, use in _users(node, incident)
        if incident.excess is not None and life in ("", container.life)
    ]


def over_quota(node: Node, *, stored: bool = True) -> Iterator[str]:
    """Yield a sentence for each container that is over a quota and has not exited; *stored* as below."""
    wording = _DONE if stored else {**_DONE, Use.STOPPING: "; it is stopped when criproxy can store that"}
    for incident in _open(node):
        for container, use in _users(node, incident) if incident.excess else ():
            if container.state is not ContainerState.EXITED:
                since, done = timestamp(incident.since_s), wording.get(use, "")
                text = f"{container.title} has been over its quota since {since}: {incident.sentence}"
                yield f"{text} (quota: {incident.action_word}{done})"


def _open(node: Node) -> list[Incident]:
    """Return the open incidents, the oldest first."""
    return sorted((each for each in node.incidents.values() if not each.ended), key=lambda each: each.since_s)


def users(node: Node, incident: Incident) -> list[Values]:
    """Return the containers that use the card, or did until they were stopped."""
    return [
        {**identity(container), "state": container.state.value, "use": use.value}
        for container, use in _users(node, incident)
    ]


def unhealthy_in_use(node: Node, *, stored: bool = True) -> Iterator[str]:
    """Yield a sentence for each unhealthy card that a container uses.

    Args:
        node: has the incidents.
        stored: whether the disk accepts the state; until then, criproxy stops no container.
    """
    stops = ", and criproxy stops them" if stored else "; criproxy stops them when it can store that"
    for incident in node.incidents.values():
        living = [(c.title, use) for c, use in _users(node, incident) if c.state is not ContainerState.EXITED]
        if living and not incident.ended and not incident.excess:
            names = ", ".join(title for title, _ in living[:MAX_NAMED])
            more = f" and {len(living) - MAX_NAMED} more" if len(living) > MAX_NAMED else ""
            since = timestamp(incident.since_s)
            text = f"{incident.device_class}: card {incident.card} has been unhealthy since {since} ({incident.reason})"
            is_stopping = incident.action is Action.STOP and Use.STOPPING in [use for _, use in living]
            yield f"{text}, and is used by {names}{more}{stops if is_stopping else ''}"


def _users(node: Node, incident: Incident) -> list[tuple[Container, Use]]:
    return [
        (container, incident.containers[container.life])
        for container in (node.containers.values() if incident.containers else ())
        if container.life in incident.containers
    ]
