"""Containers over the quota of a vGPU: the progress of the actions, as pure functions of the node."""

from collections.abc import Iterable
from dataclasses import replace

from criproxy.model.incident import KILL_S, Action, Excess, Incident, Quantity, Use
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState

MAY_BE_STOPPED = frozenset({ContainerState.RUNNING, ContainerState.UNKNOWN})


def begun(found: Incident, container: Container, now_s: float) -> Incident:
    """Return a new incident with the action for its *container*."""
    excess = found.excess
    use = Use.KILLED if excess and excess.kills else next_use(Use.USES, container, found.action)
    acted = replace(excess, acted_s=now_s) if excess and excess.kills else excess
    return replace(found, excess=acted, containers={container.life: use})


def going_on(incidents: Iterable[Incident], life: str, card: tuple[str, str], quantity: Quantity) -> Incident | None:
    """Return the open incident about a quota of a container, if there is one."""
    return next((each for each in incidents if not each.ended and each.is_of_quota(life, *card, quantity)), None)


def followed(incident: Incident, excess: Excess, node: Node, now_s: float, *, goes_on: bool) -> Incident:
    """Update the incident after its container may have ended or been removed.

    A container that has ended uses no card, so that its incident is over; it is kept as long as its status needs it.

    Args:
        incident: an incident of a quota.
        excess: the excess of the incident.
        node: has the container.
        now_s: in seconds since the epoch.
        goes_on: whether a stop that was begun continues although the incident is over.
    """
    container = next((each for each in node.containers.values() if each.life == excess.life), None)
    use = incident.containers.get(excess.life)
    if container is None or use is None:
        return replace(incident, ended=incident.ended or container is None, containers={})
    use = next_use(use, container, Action.NONE if incident.ended else incident.action)
    if container.state is ContainerState.EXITED:
        is_kept = use in (Use.STOPPED, Use.KILLED)
        return replace(incident, ended=True, containers={excess.life: use} if is_kept else {})
    is_stopped = use is Use.STOPPED or (use is Use.STOPPING and goes_on)
    may_end_yet = use is Use.KILLED and now_s - excess.acted_s <= KILL_S  # because one of its processes was killed
    is_kept = not incident.ended or is_stopped or may_end_yet
    return replace(incident, containers={excess.life: use} if is_kept else {})


def next_use(use: Use, container: Container, action: Action) -> Use:
    """Return the next state of the action: only running containers are stopped; ended ones count as stopped."""
    if use is Use.STOPPING and container.state is ContainerState.EXITED:
        return Use.STOPPED
    runs = container.state in MAY_BE_STOPPED and container.key != container.reservation
    return Use.STOPPING if action is Action.STOP and use is Use.USES and runs else use


def amounts(excess: Excess | None) -> dict[str, str | int]:
    """Return the used and the allowed amount, for programs."""
    if excess is None:
        return {}
    unit = "mib" if excess.quantity is Quantity.MEMORY else "percent"
    return {"quantity": excess.quantity.value, f"used_{unit}": excess.used, f"allowed_{unit}": excess.allowed}
