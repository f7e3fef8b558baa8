"""Which containers have less than they should have, and why, in words: for `status`, its check and `explain`.

A refused size is in the node; who should have exclusive CPUs and shares, `engine.shortfalls` says.
"""

from collections.abc import Iterator, Mapping

from criproxy.engine.shortfalls import Shortfall, refusal
from criproxy.model.amounts import counted, format_bytes, format_milli
from criproxy.model.node import Node
from criproxy.model.notices import Refusal, Values, timestamp
from criproxy.model.workload import Container, ContainerState, Desired, Miss, Missed, Sizes
from criproxy.policy.api import Policy

NOBODY: Mapping[str, Refusal] = {}
_GROWS = "it restarted with its old size, and grows when there is room"
_IN_FORCE = (
    "the runtime applies this size already, but there is no room for it: the container stays on the CPUs that it has, "
    "and grows when there is room; make room, or undo the resize"
)


def refusals(node: Node, told: Mapping[str, Refusal] = NOBODY) -> list[Refusal]:
    """The resizes of which nothing has come, the newest first; *told* is what is known of them beside the node."""
    found = [
        _refusal(container, container.desired, told.get(container.key))
        for container in node.containers.values()
        if container.desired and container.state is not ContainerState.EXITED
    ]
    return sorted(found, key=lambda refusal: -refusal.at_s)


def _refusal(container: Container, desired: Desired, told: Refusal | None) -> Refusal:
    has = "is placed for" if desired.in_force else "has"
    sizes = f"{_size(desired.sizes)}, but {has} {_size(container.sizes, desired.sizes)}"
    text, since = f"{container.title} should have {sizes}", _since(desired.since_s)
    if desired.told:
        text = f"{text}{since}: {_IN_FORCE if desired.in_force else _GROWS}"
    else:
        why = f": {told.text}" if told else ""
        text = f"{text}: its resize has been refused{since}{why}"
    return Refusal(container.title, text, told.times if told else 1, told.at_s if told else desired.since_s)


def undersized(node: Node, told: Mapping[str, Refusal] = NOBODY) -> Iterator[str]:
    """A sentence about each container whose size is not the one that it should have."""
    yield from (refusal.text for refusal in refusals(node, told))


def _since(at_s: float) -> str:
    return f" since {timestamp(at_s)}" if at_s else ""


def _size(sizes: Sizes, like: Sizes | None = None) -> str:
    """CPU and, where there is a limit, memory; in the words of *like*, with which it is compared."""
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
    if missed.why is Miss.BYPASSED and not missed.since_s:
        return "the policy was not asked about it during a bypass, or while the state could not be stored"
    return _WHY[missed.why]


def unplaced_sentence(node: Node, key: str, policy: Policy | None) -> str:
    """One of those `unplaced`, for people; *policy* is asked whether it would be refused."""
    container = node.containers[key]
    missed = container.missed
    assert missed is not None  # what makes it one of them
    why = _because(_missed(missed), refusal(node, key, policy) if policy else "")
    return f"{container.title} has shared CPUs{_since(missed.since_s)} without having been placed: {why}"


def sentence(short: Shortfall) -> str:
    """One sentence for people."""
    now = "has shared CPUs" if not short.has else f"has {short.has}"
    title, count = short.container.title, counted(short.cpus, "exclusive CPU")
    return f"{title} should have {count}, but {now}{_since(_since_s(short))}: {_why(short)}"


def to_json(short: Shortfall) -> Values:
    """As in the answer of `explain`."""
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
    if short.pod_cpu_milli is not None:
        return f"it shares the CPUs of its pod, which asks for {format_milli(short.pod_cpu_milli)} in total"
    if not short.container.reservation:
        return "criproxy found it running, and leaves it where it is"
    return "it was placed without exclusive CPUs, under another policy or for lack of room"
