"""The entries of the history about an event: one for each affected container, and why others move."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from criproxy.model.attributes import ATTRIBUTES, as_facts, changes
from criproxy.model.cpuset import CpuSet, format_cpuset, numbered
from criproxy.model.grant import AboutQuota, Applied, Grant
from criproxy.model.node import Node
from criproxy.model.record import Fact, Kind
from criproxy.model.text.amounts import are, format_seconds
from criproxy.model.text.notices import timestamp
from criproxy.model.workload import MAY_RUN, SHORT_ID, Container, ContainerState, Miss
from criproxy.placement import events
from criproxy.placement.decision import Decision
from criproxy.placement.events import Event
from criproxy.placement.rules.release import only_ends_release


@dataclass(frozen=True, slots=True)
class Entry:
    """A record before its texts are bounded."""

    about: Container | None
    """None: the entry is about the node."""
    kind: Kind
    sentences: tuple[str, ...]
    facts: dict[str, Fact] = field(default_factory=dict)
    at_s: float = 0.0
    """In seconds since the epoch."""


def entries_of(before: Node, event: Event, decision: Decision, at_s: float = 0.0) -> Iterator[Entry]:
    """Yield the entries about an event that led from *before* to *decision* at *at_s*, in seconds since the epoch."""
    after = decision.node
    match event:
        case (
            events.PodCreated() | events.UpdateApplied() | events.ResizeRefused() | events.CardReported()
        ):  # their senders record more
            return
        case events.ContainerCreating(container):
            yield _placed(container, decision)
            yield from _of_others(decision)
        case events.ContainerCreated(reservation, key) if reservation in before.containers:
            text = f"the runtime created it with the id {key[:SHORT_ID]}"
            yield Entry(after.containers[key], Kind.CREATED, (text,))
        case events.ContainerStarted(key) if _in_state(before, key) is not _in_state(after, key):
            yield Entry(after.containers[key], Kind.STARTED, ("it is running",))
        case events.UnknownOutcome(key) if _in_state(before, key) is not _in_state(after, key):
            text = "a call about it ended without an answer: it keeps its place until the runtime reports its state"
            yield Entry(after.containers[key], Kind.UNKNOWN, (text,))
        case events.ContainerExited(key) | events.ContainerGone(key) if key in before.containers:
            why = tuple([each for each in decision.sentences if not isinstance(each, AboutQuota)])
            ended_s = events.happened_s(event, at_s)
            yield from _ended(before, after, before.containers[key], "it was removed", why, ended_s)
        case events.PodStopped(key) | events.PodGone(key):
            for container in before.containers_of(key):
                yield from _ended(before, after, container, "its pod was removed", (), at_s)
        case events.ContainerResized(key) | events.ColdStartEnded(key) | events.Promoted(key) if (
            key in after.containers
        ):
            yield from _placed_anew(before, event, decision, after.containers[key], at_s)
            yield from _of_others(decision)
        case events.Found(_, containers):
            yield from _found(before, decision, [present.container.key for present in containers])
        case _:
            yield from _of_node(decision)
            yield from _of_others(decision)
            yield from _no_longer_missed(before, after, at_s)


_ANEW: dict[type[Event], tuple[str, ...]] = {
    events.ColdStartEnded: ("its cold start is over",),
    events.Promoted: ("there is room now for what it should have",),
}

_CAUSES: dict[type[Event], str] = {
    events.ContainerCreated: "other containers came or went after its create message was sent",
    events.PolicyChanged: "the policy changed",
    events.Released: "the node was released",
    events.TopologyChanged: "the machine changed",
    events.Unclassified: "its classes were looked up",
}


def cause(event: Event, node: Node) -> str:
    """Return why *event*, which is about to be applied to *node*, may move containers; empty if it moves none."""
    match event:
        case events.ContainerCreating(container):
            return f"{container.title} was created"
        case events.ContainerExited(key) | events.ContainerGone(key) | events.ContainerResized(key) if (
            key in node.containers
        ):
            verb = "was resized" if isinstance(event, events.ContainerResized) else "ended"
            return f"{node.containers[key].title} {verb}"
        case events.Promoted(key) if key in node.containers:
            return f"{node.containers[key].title} was promoted"
        case events.ColdStartEnded(key) if key in node.containers:
            return f"the cold start of {node.containers[key].title} was over"
        case events.PodStopped(key) | events.PodGone(key) if key in node.pods:
            return f"{node.pods[key].title} ended"
        case _:
            ends = isinstance(event, events.PolicyChanged) and only_ends_release(node, event)
            return "the release ended" if ends else _CAUSES.get(type(event), "")


def causes(event: Event, node: Node, decision: Decision) -> dict[str, str]:
    """Return why the *decision* about *event*, made from *node*, updates containers, by their keys."""
    why = cause(event, node)
    found = {update.key: why for update in decision.updates if why}
    quotas = (each for each in decision.reasons if each.key and isinstance(each.text, AboutQuota))
    return found | {each.key: each.text for each in quotas if each.key}


def update_text(had: Applied | None, has: Applied, why: str, seen: bool) -> str:
    """Return a sentence about a successful update: the change, the reason, and how it was verified."""
    because = f", because {why}" if why else ""
    known = "read back" if seen else "it takes effect when the container starts"
    what = " and ".join(changes(had, has)) or f"{numbered('CPU', has.cpus)} again"
    return f"{what}{because}; {known}"


def cpuset_text(has: Applied) -> str:
    """Return the cpuset that a container *has*, as a part of a sentence."""
    return f"{numbered('CPU', has.cpus)} and {numbered('memory node', has.mems)}"


def instead_text(has: Applied, wanted: Applied) -> str:
    """Return what a container *has* instead of what is *wanted*, as a part of a sentence."""
    others = changes(wanted, has, tuple([each for each in ATTRIBUTES if not each.is_cpuset]))
    instead = f"{format_cpuset(wanted.cpus)} and {format_cpuset(wanted.mems)}"
    return f"{' '.join((cpuset_text(has), *others))}, instead of {instead}"


def _placed_anew(before: Node, event: Event, decision: Decision, container: Container, at_s: float) -> Iterator[Entry]:
    reasons = (*_ANEW.get(type(event), ()), *_own(decision))
    if isinstance(event, events.Promoted):
        if decision.node is before:
            return
        if before.grants.get(container.key) == decision.grant:
            reasons = ("it is where it should be",)
    if reasons:
        ran, since = _unplaced(None if container.missed else before.containers.get(container.key), at_s)
        yield Entry(container, Kind.RESIZED, (*reasons, *ran), _facts(decision.grant) | since)


def _no_longer_missed(before: Node, after: Node, at_s: float) -> Iterator[Entry]:
    """Yield an entry for each container that an event about the node has given the place that it had missed."""
    for key, former in before.containers.items():
        now = after.containers.get(key)
        if former.missed and now and not now.missed and key in after.grants:
            ran, since = _unplaced(former, at_s)
            if since:
                yield Entry(now, Kind.RESIZED, ran, _facts(after.grants[key]) | since)


def _unplaced(former: Container | None, at_s: float) -> tuple[tuple[str, ...], dict[str, Fact]]:
    """Return a sentence and a fact about the time until *at_s* in which a container ran without having been placed."""
    since_s = former.missed.since_s if former and former.missed and former.state in MAY_RUN else 0.0
    if not since_s:
        return (), {}
    return (unplaced_text(since_s, at_s),), {"unplaced_since_s": since_s, "unplaced_until_s": at_s}


def unplaced_text(since_s: float, until_s: float) -> str:
    """Return a sentence about such a time, in seconds since the epoch."""
    lasted_s = max(0.0, until_s - since_s)
    lasted = f"{lasted_s:.1f} s" if lasted_s < 60 else format_seconds(lasted_s)
    return f"it ran without having been placed from {timestamp(since_s)} to {timestamp(until_s)} ({lasted})"


def _placed(new: Container, decision: Decision) -> Entry:
    if decision.key != new.key:
        text = f"it repeats a create without an answer, and takes over its place ({decision.key})"
        return Entry(new, Kind.REPEATED, (text,))
    kind = Kind.GRANTED if new.state is ContainerState.CREATING else Kind.ADOPTED
    placed = decision.node.containers.get(new.key, new)
    return Entry(placed, kind, _own(decision) or ("it is left where it is",), _facts(decision.grant))


def _found(before: Node, decision: Decision, keys: Iterable[str]) -> Iterator[Entry]:
    after, reasons = decision.node, _by_container(decision)
    for key in keys:
        if key in before.containers or key not in after.containers:
            continue
        container, grant = after.containers[key], after.grants.get(key)
        origin = "has criproxy's stamp" if container.reservation else _origin(container)
        where = numbered("CPU", after.applied[key].cpus) if key in after.applied else "its CPUs"
        placed = f"it is placed on {numbered('CPU', grant.cpus)}" if grant else f"unplaced, it stays on {where}"
        own = reasons.get(key, ())
        yield Entry(container, Kind.ADOPTED, (f"it was found running and {origin}; {placed}", *own), _facts(grant))
    yield from _of_node(decision)


def _origin(container: Container) -> str:
    """Return how a container without a stamp was created."""
    if container.missed is None:
        return "was started without criproxy"
    if container.missed.unseen:
        return "was created without criproxy being asked"
    during = container.missed.why is Miss.BYPASSED
    return "was created during a bypass" if during else "was created while criproxy was failing"


def _own(decision: Decision) -> tuple[str, ...]:
    """Return the sentences of a decision that are not about other containers."""
    return tuple(reason.text for reason in decision.reasons if reason.key in (None, decision.key))


def _of_node(decision: Decision) -> Iterator[Entry]:
    """Yield an entry with the sentences about the node."""
    if sentences := tuple(reason.text for reason in decision.reasons if reason.key is None):
        yield Entry(None, Kind.NODE, sentences)


def _of_others(decision: Decision) -> Iterator[Entry]:
    """Yield an entry for each container with sentences, except the one that the event is about.

    Sentences about quotas are in the entries of their updates.
    """
    after = decision.node
    for key, found in _by_container(decision).items():
        sentences = [each for each in found if not isinstance(each, AboutQuota)]
        if sentences and key != decision.key and key in after.containers:
            yield Entry(after.containers[key], Kind.GRANTED, tuple(sentences), _facts(after.grants.get(key)))


def _by_container(decision: Decision) -> dict[str, list[str]]:
    """Return the sentences by container key."""
    found: dict[str, list[str]] = {}
    for reason in decision.reasons:
        if reason.key is not None:
            found.setdefault(reason.key, []).append(reason.text)
    return found


def _ended(
    before: Node, after: Node, container: Container, removed: str, reasons: tuple[str, ...], at_s: float
) -> Iterator[Entry]:
    """Yield an entry about the end of *container*, if it ended, with the CPUs that it released."""
    now = after.containers.get(container.key)
    if now is container:
        return
    text = "it ended" if now else removed if container.has_id else "its reserved place was released"
    grant = before.grants.get(container.key)
    if grant and grant.exclusive and container.key not in after.grants:
        text += _left(after, grant.exclusive)
    ran, since = _unplaced(container, at_s)
    yield Entry(container, Kind.EXITED if now else Kind.GONE, (text, *reasons, *ran), since)


def _left(after: Node, owned: CpuSet) -> str:
    """Return what happened to the exclusive CPUs of a container that has ended, to append to a sentence."""
    if kept := owned & after.kept_cpus:
        return f": its exclusive {numbered('CPU', kept)} {are(len(kept))} kept for its pod"
    if shared := owned & after.owned_cpus:
        return f": its exclusive {numbered('CPU', shared)} {are(len(shared))} still with its pod"
    return f": its exclusive {numbered('CPU', owned)} {are(len(owned))} free"


def _in_state(node: Node, key: str) -> ContainerState | None:
    container = node.containers.get(key)
    return container.state if container else None


def _facts(grant: Grant | None) -> dict[str, Fact]:
    if grant is None:
        return {}
    return {
        **as_facts("", grant),
        "exclusive_cpus": format_cpuset(grant.exclusive),
        "pool": grant.pool,
        **({"classes": dict(grant.controls.classes)} if grant.controls.classes else {}),
    }
