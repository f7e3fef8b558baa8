"""One log line per decision: who, what it asked for, what it got, and why."""

from criproxy.control.settings import Log
from criproxy.engine.decision import Decision
from criproxy.engine.events import ContainerCreating, ContainerResized, Event, PolicyChanged, Released, TopologyChanged
from criproxy.model.cpuset import format_cpuset
from criproxy.model.node import Node
from criproxy.model.workload import Container


def tell(log: Log, event: Event, before: Node, decision: Decision, took_s: float) -> None:
    """Write the line of a decision that placed, moved or released somebody; nothing for all others."""
    sentence = _sentence(event, before, decision)
    if sentence is None:
        return
    log.info(
        sentence,
        **_who(decision, before),
        **_place(decision),
        moved=len(decision.updates),
        reasons=list(decision.reasons),
        decision_ms=round(took_s * 1000, 2),
    )


def _sentence(event: Event, before: Node, decision: Decision) -> str | None:
    match event:
        case ContainerCreating(container):
            return _arrival(container, decision)
        case PolicyChanged() | Released():
            return "policy changed" if isinstance(event, PolicyChanged) else "node released"
        case ContainerResized() | TopologyChanged() if decision.reasons:
            return "container resized" if isinstance(event, ContainerResized) else "machine changed"
    fewer = len(before.grants) > len(decision.node.grants)
    return "place given back" if fewer else None


def _arrival(container: Container, decision: Decision) -> str:
    return "container placed" if decision.key == container.key else "create repeated"


def _who(decision: Decision, before: Node) -> dict[str, object]:
    """The container that the decision is about, and what it asked for."""
    key = decision.key
    container = decision.node.containers.get(key or "") or before.containers.get(key or "")
    return {} if container is None else {"container": container.title, "id": key, **_asked(container)}


def _asked(container: Container) -> dict[str, object]:
    asked: dict[str, object] = {"qos": container.qos.value, "cpu_milli": container.cpu_milli}
    if container.cpu_limit_milli is not None:
        asked["cpu_limit_milli"] = container.cpu_limit_milli
    if container.memory_limit_bytes is not None:
        asked["memory_limit_bytes"] = container.memory_limit_bytes
    return asked


def _place(decision: Decision) -> dict[str, object]:
    grant = decision.grant
    if grant is None:
        return {}
    place: dict[str, object] = {"cpus": format_cpuset(grant.cpus), "mems": format_cpuset(grant.mems)}
    if grant.exclusive:
        place["exclusive"] = format_cpuset(grant.exclusive)
    return {**place, "pool": grant.pool} if grant.pool else place
