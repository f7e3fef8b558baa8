"""Containers that are over the quota of a vGPU: how far it is with each of them, as pure functions of the node."""

from collections.abc import Iterable
from dataclasses import replace

from criproxy.model.incident import KILL_S, Action, Excess, Incident, Quantity, Use
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState

MAY_BE_STOPPED = frozenset({ContainerState.RUNNING, ContainerState.UNKNOWN})


def begun(found: Incident, container: Container, now_s: float) -> Incident:
    """An incident that is new, with what is to be done about its *container*."""
    excess = found.excess
    use = Use.KILLED if excess and excess.kills else next_use(Use.USES, container, found.action)
    acted = replace(excess, acted_s=now_s) if excess and excess.kills else excess
    return replace(found, excess=acted, containers={container.life: use})


def going_on(incidents: Iterable[Incident], life: str, card: tuple[str, str], quantity: Quantity) -> Incident | None:
    """The incident about a quota of a container, if there is one that goes on."""
    return next((each for each in incidents if not each.ended and each.is_of_quota(life, *card, quantity)), None)


def followed(incident: Incident, excess: Excess, node: Node, now_s: float, *, goes_on: bool) -> Incident:
    """The incident as it is now that its container may have ended, or is gone.

    A container that has ended uses nothing, so that its incident is over; it is kept for what the status has to say.

    Args:
        incident: of a quota.
        excess: that of the incident.
        node: has the container.
        now_s: in seconds since the epoch.
        goes_on: whether a stop that has been begun is brought to its end although the incident is over.
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
    is_kept = not incident.ended or is_stopped or _may_end_yet(use, excess, now_s)
    return replace(incident, containers={excess.life: use} if is_kept else {})


def next_use(use: Use, container: Container, action: Action) -> Use:
    """How far it is with a container: to be stopped it has to run, and who has ended meanwhile was stopped."""
    if use is Use.STOPPING and container.state is ContainerState.EXITED:
        return Use.STOPPED
    runs = container.state in MAY_BE_STOPPED and container.key != container.reservation
    return Use.STOPPING if action is Action.STOP and use is Use.USES and runs else use


def amounts(excess: Excess | None) -> dict[str, str | int]:
    """What is used and allowed, for programs."""
    if excess is None:
        return {}
    unit = "mib" if excess.quantity is Quantity.MEMORY else "percent"
    return {"quantity": excess.quantity.value, f"used_{unit}": excess.used, f"allowed_{unit}": excess.allowed}


def _may_end_yet(use: Use, excess: Excess, now_s: float) -> bool:
    """Whether a process of it was killed so recently that its end may still be that."""
    return use is Use.KILLED and now_s - excess.acted_s <= KILL_S
