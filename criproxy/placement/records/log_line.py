"""The log line of a decision: the container, its requests, its grant, and the reasons."""

from collections.abc import Sequence

from criproxy.model.attributes import CPUSET, changes, granted
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.node import Node
from criproxy.model.text.bounded import MAX_TEXTS, bounded_texts
from criproxy.model.workload import SHORT_ID, Container
from criproxy.placement import events
from criproxy.placement.decision import Decision
from criproxy.placement.events import Event
from criproxy.placement.rules.release import only_ends_release


def log_line(event: Event, before: Node, decision: Decision) -> tuple[str, dict[str, object]] | None:
    """Return the event text and the keys for a decision that placed, moved or released a container; None for others."""
    is_news = before.configuration or decision.updates or decision.reasons  # else it is the first one of a new node
    if isinstance(event, events.PolicyChanged) and (decision.node is before or not is_news):
        return None  # unchanged: the event repeats, as after each start with unplaced containers
    sentence = _sentence(event, before, decision)
    if sentence is not None:
        keys = {**_container(decision), **_place(decision.grant)}
    elif gone := _released(event, before, decision):
        sentence, keys = "place released", _freed(before, gone)
    else:
        return None
    if decision.reasons:
        keys["reasons"] = list(bounded_texts(decision.sentences))
    if decision.updates:
        keys["moves"] = _moves(before, decision)
    return sentence, {**keys, "moved": len(decision.updates)}


def _moves(before: Node, decision: Decision) -> tuple[str, ...]:
    """Return who moves from where to where, by ids of the runtime; of many containers only the first."""
    texts = list[str]()
    for update in decision.updates[:MAX_TEXTS]:
        grant = before.grants.get(update.key)
        had = before.applied.get(update.key) or (granted(grant) if grant else None)
        is_classed = grant is not None and grant.controls != update.grant.controls
        rest = "what its classes set" if is_classed else "CPU limit"
        moves = " and ".join(changes(had, granted(update.grant), CPUSET)) or rest
        texts.append(f"{decision.node.containers[update.key].title} ({update.key[:SHORT_ID]}): {moves}")
    more = len(decision.updates) - len(texts)
    return (*bounded_texts(texts), *([f"and {more} more"] if more else []))


def _sentence(event: Event, before: Node, decision: Decision) -> str | None:
    match event:
        case events.ContainerCreating(container):
            return "container placed" if decision.key == container.key else "create repeated"
        case events.Released():
            return "node released"
        case events.PolicyChanged():
            return "release ended" if only_ends_release(before, event) else "policy changed"
        case events.Promoted() if decision.reasons:
            return "container promoted"
        case events.ContainerResized() | events.TopologyChanged() if decision.reasons:
            return "container resized" if isinstance(event, events.ContainerResized) else "machine changed"
    return None


def _released(event: Event, before: Node, decision: Decision) -> list[Container]:
    """Return the containers that lost their grants by *event*."""
    match event:
        case events.ContainerExited(key) | events.ContainerGone(key):
            ended = [before.containers[key]] if key in before.containers else []
        case events.PodStopped(key) | events.PodGone(key):
            ended = before.containers_of(key)
        case _:
            return []
    return [each for each in ended if each.key in before.grants and each.key not in decision.node.grants]


def _freed(before: Node, gone: Sequence[Container]) -> dict[str, object]:
    owned = NO_CPUS.union(*(before.grants[each.key].exclusive for each in gone))
    freed = {"exclusive": format_cpuset(owned)} if owned else {}
    if len(gone) == 1:
        return {"container": gone[0].title, **_ids(gone[0]), **freed}
    return {"containers": [each.title for each in gone], **freed}


def _container(decision: Decision) -> dict[str, object]:
    """Return the container that the decision is about, and its requests."""
    container = decision.node.containers.get(decision.key or "")
    if container is None:
        return {}
    return {"container": container.title, **_ids(container), **_asked(container)}


def _ids(container: Container) -> dict[str, str]:
    """Return the ids that crictl knows; the sandbox's, if the runtime has not given the container one."""
    return {"id": container.key} if container.has_id else {"sandbox": container.pod, "reservation": container.key}


def _asked(container: Container) -> dict[str, object]:
    sizes = {name: getattr(container, name) for name in ("cpu_milli", "cpu_limit_milli", "memory_limit_bytes")}
    return {"qos": container.qos.value, **{name: size for name, size in sizes.items() if size is not None}}


def _place(grant: Grant | None) -> dict[str, object]:
    if grant is None:
        return {}
    place: dict[str, object] = {"cpus": format_cpuset(grant.cpus), "mems": format_cpuset(grant.mems)}
    if grant.exclusive:
        place["exclusive"] = format_cpuset(grant.exclusive)
    return {**place, "pool": grant.pool} if grant.pool else place
