"""Sentences about containers that have less than they should have, for `status`, its check and `explain`.

A refused size is in the node; `placement.answers.shortfalls` finds shared containers that should have exclusive CPUs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from criproxy.model.node import Node
from criproxy.model.text.amounts import counted, format_bytes, format_milli
from criproxy.model.text.bounded import in_turn
from criproxy.model.text.notices import Refusal, Values, timestamp
from criproxy.model.workload import Container, ContainerState, Desired, Miss, Missed, Pod, QosClass, Sizes
from criproxy.placement.answers.shortfalls import Shortfall, refusal
from criproxy.placement.policies.api import Policy

NO_REFUSALS: Mapping[str, Refusal] = {}
_GROWS = "it restarted with its old size, and grows when there is room"
_IN_FORCE = (
    "the runtime already applies the new size, but there is no room for it: the container stays on the CPUs that it "
    "has, and grows when there is room; make room, or undo the resize"
)


def refusals(node: Node, known: Mapping[str, Refusal] = NO_REFUSALS) -> list[Refusal]:
    """Return the pending resizes, the newest first; *known* has their refusals in memory, by container key.

    A resize of a pod with pod-level resources is one for all its containers without a size of their own.
    """
    found, pods = list[Refusal](), set[tuple[str, bool]]()
    for container in node.containers.values():
        desired = container.desired
        if desired is None or container.state is ContainerState.EXITED:
            continue
        refused, pod = known.get(container.key), node.pods.get(container.pod)
        if pod is None or not desired.sizes.of_pod:
            found.append(_refusal(container.title, desired, (desired.sizes, container.sizes), refused))
        elif (pod.key, desired.told) not in pods:  # its containers without a size of their own lack it together
            pods.add((pod.key, desired.told))
            found.append(
                _refusal(f"the pod {pod.title}", desired, _sizes_of_pod(node, pod, container, desired), refused)
            )
    return sorted(found, key=lambda refusal: -refusal.at_s)


def _sizes_of_pod(node: Node, pod: Pod, container: Container, desired: Desired) -> tuple[Sizes, Sizes]:
    """Return the sizes that *pod* should have and has, of which *container* has no size of its own."""
    alive = (each for each in node.containers_of(pod.key) if each.state is not ContainerState.EXITED)
    has_milli = sum(each.cpu_request_milli.low for each in alive)
    limit_milli = desired.sizes.cpu_limit_milli or 0
    asks_milli = limit_milli if pod.qos is QosClass.GUARANTEED else pod.cap_milli or limit_milli
    return replace(desired.sizes, cpu_milli=asks_milli), replace(container.sizes, cpu_milli=has_milli)


def _refusal(title: str, desired: Desired, sizes: tuple[Sizes, Sizes], known: Refusal | None) -> Refusal:
    """Return the refusal about *title*, a container or pod, with the *sizes* that it should have and has."""
    asked, has = sizes
    text = f"{title} should have {_size(asked)}, but {_verb(desired)} {_size(has, asked)}"
    since = _since(desired.since_s)
    if desired.told:
        text = f"{text}{since}: {_IN_FORCE if desired.in_force else _GROWS}"
    else:
        why = f": {known.text}" if known else ""
        text = f"{text}: its resize has been refused{since}{why}"
    at_s = known.at_s if known else desired.since_s
    return Refusal(title.removeprefix("the pod "), text, known.times if known else 1, at_s)


def _verb(desired: Desired) -> str:
    """What precedes the present size: the perfect tense if the time since when follows it."""
    if desired.in_force:
        return "has had a place for only" if desired.told else "has a place for only"
    return "has had" if desired.told else "has"


def undersized(node: Node, known: Mapping[str, Refusal] = NO_REFUSALS) -> Iterator[str]:
    """Yield a sentence about each container, or pod with pod-level resources, that does not have its desired size.

    The newest of each namespace come first: only the first are shown, and no tenant hides those of others.
    """
    pending = in_turn(refusals(node, known), lambda refusal: refusal.container.partition("/")[0])
    yield from (refusal.text for refusal in pending)


def _since(at_s: float) -> str:
    return f" since {timestamp(at_s)}" if at_s else ""


def _size(sizes: Sizes, like: Sizes | None = None) -> str:
    """Return CPU and, if *sizes* or *like* has a memory limit, memory as text."""
    milli = sizes.cpu_milli
    parts = [f"{format_milli(milli)} CPU{'' if milli == 1000 else 's'}"]
    limit = sizes.memory_limit_bytes
    if limit is not None or (like and like.memory_limit_bytes is not None):
        parts.append("no memory limit" if limit is None else format_bytes(limit))
    return " and ".join(parts)


_WHY = {
    Miss.FAILED: "criproxy was failing when the container was created",
    Miss.BYPASSED: "it was created during a bypass",
    Miss.UNFIT: "the policy had no place for it when criproxy placed all containers anew, or found it running",
}


def _missed(missed: Missed) -> str:
    if missed.unseen:
        return "criproxy was not asked when it was created or started"
    if missed.why is Miss.BYPASSED and not missed.since_s:
        return "the policy was not asked about it during a bypass, or while the state could not be stored"
    return _WHY[missed.why]


def unplaced_sentence(node: Node, key: str, policy: Policy | None) -> str:
    """Return a sentence about one of the `unplaced` containers; *policy* is asked whether it would refuse it."""
    container = node.containers[key]
    missed = container.missed
    assert missed is not None  # as `unplaced` requires
    why = _because(_missed(missed), refusal(node, key, policy) if policy else "")
    has = "has had" if missed.since_s else "has"
    return f"{container.title} {has} shared CPUs{_since(missed.since_s)} without having been placed: {why}"


def sentence(short: Shortfall) -> str:
    """Return a sentence about *short*."""
    since = _since(_since_s(short))
    now = f"{'has had' if since else 'has'} {short.has or 'shared CPUs'}{since}"
    title, count = short.container.title, counted(short.cpus, "exclusive CPU")
    return f"{title} should have {count}, but {now}: {_why(short)}"


def to_json(short: Shortfall) -> Values:
    """Return *short* as in the answer of `explain`."""
    since_s = _since_s(short)
    since = timestamp(since_s) if since_s else ""
    return {"should_own_cpus": short.cpus, "owns_cpus": short.has, "since": since, "why": _why(short)}


def _since_s(short: Shortfall) -> float:
    return short.missed.since_s if short.missed else 0.0


def _why(short: Shortfall) -> str:
    return _because(_missed(short.missed) if short.missed else _other(short), short.refusal)


def _because(why: str, refused: str) -> str:
    return f"{why}; {refused}" if refused else why


def _other(short: Shortfall) -> str:
    if not short.container.reservation:
        return "criproxy found it running, and leaves it where it is"
    if short.has:
        return "CPUs went offline, or were taken from the pods' cgroup"
    return "CPUs went offline, or it was placed without exclusive CPUs, under another policy or for lack of room"
