"""The history that `criproxy explain` shows: its entries, and the last refusals."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from criproxy.engine.decision import Decision
from criproxy.engine.events import (
    ColdStartEnded,
    ContainerCreated,
    ContainerCreating,
    ContainerExited,
    ContainerGone,
    ContainerResized,
    ContainerStarted,
    Event,
    Found,
    PodCreated,
    PodGone,
    PodStopped,
    PolicyChanged,
    Promoted,
    Released,
    ResizeRefused,
    TopologyChanged,
    UnknownOutcome,
    UpdateApplied,
)
from criproxy.model.bounded import bounded_text, bounded_texts
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import Applied, Grant
from criproxy.model.node import Node
from criproxy.model.notices import Refusal
from criproxy.model.record import Fact, Kind, Record
from criproxy.model.workload import SHORT_ID, Container, ContainerState, Miss

REFUSAL_S = 3600.0
"""The kubelet repeats what was refused: one that it has not repeated for so long is no longer wanted."""
MAX_REFUSALS = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """A record before its texts are bounded."""

    about: Container | None
    """None: it is about the node."""
    kind: Kind
    sentences: tuple[str, ...]
    facts: dict[str, Fact]
    at_s: float = field(default_factory=time.time)
    """In seconds since the epoch."""


class History:
    """Makes records of entries, and remembers the last refusals; for the event loop's thread.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._refusals: dict[str, Refusal] = {}
        """By name, in the order in which they were heard of last."""

    def refusals(self) -> list[Refusal]:
        """The containers that were refused within the last `REFUSAL_S` and not placed since, the newest first."""
        since_s = self._clock() - REFUSAL_S
        return [refusal for refusal in reversed(self._refusals.values()) if refusal.at_s > since_s]

    def refused_in(self) -> frozenset[str]:
        """The sandboxes of the containers that were refused."""
        return frozenset(refusal.sandbox for refusal in self._refusals.values())

    def forget_refused(self, sandboxes: Collection[str]) -> None:
        """Drop the refusals of containers in these *sandboxes*, which are gone."""
        for title in [title for title, refusal in self._refusals.items() if refusal.sandbox in sandboxes]:
            del self._refusals[title]

    def record(self, entry: Entry) -> Record:
        """*entry* as it is written."""
        about = entry.about
        if about and entry.kind in (Kind.REFUSED, Kind.GRANTED):
            self._remember(about, entry)
        sentences, facts = bounded_texts(entry.sentences), _bounded_facts(entry.facts)
        if about is None:
            return Record(entry.at_s, "", "", entry.kind, sentences, "", facts)
        return Record(entry.at_s, about.key, about.title, entry.kind, sentences, about.life, facts)

    def _remember(self, about: Container, entry: Entry) -> None:
        title = about.title
        before = self._refusals.pop(title, None)
        if entry.kind is Kind.REFUSED:
            times = before.times + 1 if before else 1
            text = bounded_text(" ".join(bounded_texts(entry.sentences)))
            self._refusals[title] = Refusal(title, text, times, self._clock(), about.pod)
        if len(self._refusals) > MAX_REFUSALS:
            del self._refusals[next(iter(self._refusals))]


def _bounded_facts(facts: Mapping[str, Fact]) -> Mapping[str, Fact]:
    """*facts*, of which some have texts that tenants wrote, each cut."""
    return {key: bounded_text(fact) if isinstance(fact, str) else fact for key, fact in facts.items()}


def entries_of(before: Node, event: Event, decision: Decision) -> Iterator[Entry]:
    """The entries about an event that led from *before* to *decision*."""
    after = decision.node
    match event:
        case PodCreated() | UpdateApplied() | ResizeRefused():  # the sender of the update or refusal records more
            return
        case ContainerCreating(container):
            yield _placed(container, decision)
            yield from _of_others(decision)
        case ContainerCreated(reservation, key) if reservation in before.containers:
            yield Entry(
                after.containers[key], Kind.CREATED, (f"the runtime created it with the id {key[:SHORT_ID]}",), {}
            )
        case ContainerStarted(key) if _in_state(before, key) is not _in_state(after, key):
            yield Entry(after.containers[key], Kind.STARTED, ("it runs",), {})
        case UnknownOutcome(key) if _in_state(before, key) is not _in_state(after, key):
            text = "a call about it ended without an answer: it keeps its place until the runtime reports its state"
            yield Entry(after.containers[key], Kind.UNKNOWN, (text,), {})
        case ContainerExited(key) | ContainerGone(key) if key in before.containers:
            yield from _ended(before, after, before.containers[key], "it was removed", decision.sentences)
        case PodStopped(key) | PodGone(key):
            for container in before.containers_of(key):
                yield from _ended(before, after, container, "its pod was removed", ())
        case ContainerResized(key) | ColdStartEnded(key) | Promoted(key) if key in after.containers:
            yield from _placed_anew(before, event, decision, after.containers[key])
            yield from _of_others(decision)
        case Found(_, containers):
            yield from _found(before, decision, [present.container.key for present in containers])
        case _:
            yield from _of_node(decision)
            yield from _of_others(decision)


_ANEW: dict[type[Event], tuple[str, ...]] = {
    ColdStartEnded: ("its cold start is over",),
    Promoted: ("there is room for what it should have",),
}

_CAUSES: dict[type[Event], str] = {
    ContainerCreated: "other containers came or went after its create message was sent",
    PolicyChanged: "the policy changed",
    Released: "the node was released",
    TopologyChanged: "the machine changed",
}


def cause(event: Event, node: Node) -> str:
    """Why containers may move because of *event*, which is about to happen to *node*; empty where none does."""
    match event:
        case ContainerCreating(container):
            return f"{container.title} was created"
        case ContainerExited(key) | ContainerGone(key) | ContainerResized(key) if key in node.containers:
            verb = "was resized" if isinstance(event, ContainerResized) else "ended"
            return f"{node.containers[key].title} {verb}"
        case Promoted(key) if key in node.containers:
            return f"{node.containers[key].title} was promoted"
        case ColdStartEnded(key) if key in node.containers:
            return f"the cold start of {node.containers[key].title} was over"
        case PodStopped(key) | PodGone(key) if key in node.pods:
            return f"{node.pods[key].title} ended"
        case _:
            return _CAUSES.get(type(event), "")


def told_update(had: Applied | None, has: Applied, why: str, seen: bool) -> str:
    """One sentence about an update that went through: from where to where, why, and how we know."""
    changes = [
        f"{name} {format_cpuset(old) or 'unknown'} → {format_cpuset(new)}"
        for name, old, new in (
            ("CPUs", had.cpus if had else frozenset(), has.cpus),
            ("memory nodes", had.mems if had else frozenset(), has.mems),
        )
        if new and old != new
    ]
    changes += [told_quota(has, had).strip()] if had and had.lifted != has.lifted else []
    because = f", because {why}" if why else ""
    known = "read back" if seen else "it counts from its start: it does not run yet"
    return f"{' and '.join(changes) or f'CPUs {format_cpuset(has.cpus)} once more'}{because}; {known}"


def told_quota(has: Applied, other: Applied) -> str:
    """That a container *has* a CFS quota, or none, where that is another thing than *other*; else empty."""
    if has.lifted == other.lifted:
        return ""
    return " without CFS quota" if has.lifted else " with a CFS quota"


def _placed_anew(before: Node, event: Event, decision: Decision, container: Container) -> Iterator[Entry]:
    reasons = (*_ANEW.get(type(event), ()), *_own(decision))
    if reasons and (decision.node is not before or not isinstance(event, Promoted)):
        yield Entry(container, Kind.RESIZED, reasons, _facts(decision.grant))


def _placed(new: Container, decision: Decision) -> Entry:
    if decision.key != new.key:
        text = f"it repeats a create without an answer, and takes over its place ({decision.key})"
        return Entry(new, Kind.REPEATED, (text,), {})
    kind = Kind.GRANTED if new.state is ContainerState.CREATING else Kind.ADOPTED
    placed = decision.node.containers.get(new.key, new)
    return Entry(placed, kind, _own(decision) or ("it is left where it is",), _facts(decision.grant))


def _found(before: Node, decision: Decision, keys: Iterable[str]) -> Iterator[Entry]:
    after, reasons = decision.node, _by_container(decision)
    for key in keys:
        if key in before.containers or key not in after.containers:
            continue
        container, grant = after.containers[key], after.grants.get(key)
        origin = "is ours by its stamp" if container.reservation else _origin(container)
        where = f"CPUs {format_cpuset(after.applied[key].cpus)}" if key in after.applied else "its CPUs"
        placed = f"it is placed on CPUs {format_cpuset(grant.cpus)}" if grant else f"unplaced, it stays on {where}"
        own = reasons.get(key, ())
        yield Entry(container, Kind.ADOPTED, (f"it was found running and {origin}; {placed}", *own), _facts(grant))
    yield from _of_node(decision)


def _origin(container: Container) -> str:
    """Whence a container comes that has no stamp of ours."""
    if container.missed is None:
        return "was started without criproxy"
    during = container.missed.why is Miss.BYPASSED
    return "was created during a bypass" if during else "was created while criproxy failed"


def _own(decision: Decision) -> tuple[str, ...]:
    """The sentences of a decision about one container that are not about others."""
    return tuple(reason.text for reason in decision.reasons if reason.key in (None, decision.key))


def _of_node(decision: Decision) -> Iterator[Entry]:
    """An entry with the sentences about the node."""
    if sentences := tuple(reason.text for reason in decision.reasons if reason.key is None):
        yield Entry(None, Kind.NODE, sentences, {})


def _of_others(decision: Decision) -> Iterator[Entry]:
    """An entry for each container, other than the one that the event is about, about which there are sentences."""
    after = decision.node
    for key, sentences in _by_container(decision).items():
        if key != decision.key and key in after.containers:
            yield Entry(after.containers[key], Kind.GRANTED, tuple(sentences), _facts(after.grants.get(key)))


def _by_container(decision: Decision) -> dict[str, list[str]]:
    """The sentences about each container, by its key."""
    found: dict[str, list[str]] = {}
    for reason in decision.reasons:
        if reason.key is not None:
            found.setdefault(reason.key, []).append(reason.text)
    return found


def _ended(before: Node, after: Node, container: Container, removed: str, reasons: tuple[str, ...]) -> Iterator[Entry]:
    """The end of *container*, if this was one, and what it gave back."""
    now = after.containers.get(container.key)
    if now is container:
        return
    if now is not None:
        text = "it ended"
    elif container.key == container.reservation:
        text = "its reserved place was given back"
    else:
        text = removed
    grant = before.grants.get(container.key)
    if grant and grant.exclusive and container.key not in after.grants:
        text += _left(after, grant.exclusive)
    yield Entry(container, Kind.EXITED if now else Kind.GONE, (text, *reasons), {})


def _left(after: Node, owned: CpuSet) -> str:
    """What became of the CPUs that one who has ended owned."""
    if kept := owned & after.kept_cpus:
        return f": its exclusive CPUs {format_cpuset(kept)} are kept for its pod"
    if shared := owned & after.owned_cpus:
        return f": its exclusive CPUs {format_cpuset(shared)} stay with its pod"
    return f": its exclusive CPUs {format_cpuset(owned)} are free"


def _in_state(node: Node, key: str) -> ContainerState | None:
    container = node.containers.get(key)
    return container.state if container else None


def _facts(grant: Grant | None) -> dict[str, Fact]:
    if grant is None:
        return {}
    return {
        "cpus": format_cpuset(grant.cpus),
        "mems": format_cpuset(grant.mems),
        "exclusive_cpus": format_cpuset(grant.exclusive),
        "pool": grant.pool,
    }
