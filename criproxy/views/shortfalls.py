"""Which containers have less than they should have, and why, in words: for `status`, its check and `explain`.

Pure: a refused size is in the node; who should have exclusive CPUs and shares, the policy says, asked about the empty
machine.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from criproxy.engine.complete import complete
from criproxy.errors import Refused
from criproxy.model.amounts import counted, format_bytes, format_milli
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Desired, Miss, Missed, QosClass, Sizes
from criproxy.policy.api import Policy
from criproxy.policy.exclusive import exclusive_of
from criproxy.views.notices import Refusal, Values, timestamp

NOBODY: Mapping[str, Refusal] = {}
_GROWS = "it restarted with its old size, and grows when there is room"


def refusals(node: Node, told: Mapping[str, Refusal] = NOBODY) -> list[Refusal]:
    """The resizes of which nothing has come, the newest first; *told* is what is known of them beside the node."""
    found = [
        _refusal(container, container.desired, told.get(container.key))
        for container in node.containers.values()
        if container.desired and container.state is not ContainerState.EXITED
    ]
    return sorted(found, key=lambda refusal: -refusal.at_s)


def _refusal(container: Container, desired: Desired, told: Refusal | None) -> Refusal:
    sizes = f"{_size(desired.sizes)}, and has {_size(container.sizes, desired.sizes)}"
    text, since = f"{container.title} should have {sizes}", _since(desired.since_s)
    if desired.told:
        text = f"{text}{since}: {_GROWS}"
    else:
        why = f": {told.text}" if told else ""
        text = f"{text}: its resize is refused{since}{why}"
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


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A container that should have exclusive CPUs, and shares."""

    key: str
    title: str
    cpus: int
    """How many it should have."""
    has: int
    """How many it has."""
    why: str
    """Why that is so, as the end of a sentence."""
    missed: bool
    """Whether it came while the policy was not asked: then something is wrong, not only different."""
    since_s: float = 0.0
    """In seconds since the epoch; 0 where it is not known."""

    @property
    def sentence(self) -> str:
        """One sentence for people."""
        now = "shares" if not self.has else f"has {self.has}"
        count = counted(self.cpus, "exclusive CPU")
        return f"{self.title} should have {count}, {now}{_since(self.since_s)}: {self.why}"

    def to_json(self) -> Values:
        """As in the answer of `explain`."""
        since = timestamp(self.since_s) if self.since_s else ""
        return {"should_own_cpus": self.cpus, "owns_cpus": self.has, "since": since, "why": self.why}


_WHY = {
    Miss.FAILED: "criproxy failed while it was created",
    Miss.BYPASSED: "it was created during a bypass",
    Miss.UNFIT: "the policy had no place for it when criproxy placed all containers anew, or found it running",
}


def _missed(missed: Missed) -> str:
    if missed.why is Miss.BYPASSED and not missed.since_s:
        return "the policy was not asked about it during a bypass, or while the state could not be stored"
    return _WHY[missed.why]


def unplaced(node: Node) -> list[str]:
    """The keys of the containers that share where there was room when the policy was not asked about them.

    Some should own CPUs: those `shortfalls` tells.
    """
    if node.released:
        return []
    alive = (each for each in node.containers.values() if each.is_unplaced and each.state is not ContainerState.EXITED)
    found = ((each.key, node.grants.get(each.key)) for each in alive)
    return [key for key, grant in found if grant and not grant.exclusive]


def unplaced_sentence(node: Node, key: str, policy: Policy | None) -> str:
    """One of those `unplaced`, for people; *policy* is asked whether it would be refused."""
    container = node.containers[key]
    missed = container.missed
    assert missed is not None  # what makes it one of them
    _, refusal = (None, "") if policy is None else _granted(complete(policy), node, container)
    why = f"{_missed(missed)}; {refusal}" if refusal else _missed(missed)
    return f"{container.title} shares{_since(missed.since_s)} without having been placed: {why}"


def shortfalls(node: Node, policy: Policy | None) -> list[Shortfall]:
    """The containers that share although *policy* would give them exclusive CPUs on an empty machine.

    Slow: it asks the policy once for each Guaranteed container that shares.
    """
    found = (shortfall(node, policy, key) for key in node.grants)
    return [one for one in found if one]


def shortfall(node: Node, policy: Policy | None, key: str) -> Shortfall | None:
    """What the container *key* lacks; None where it lacks nothing, the node is released, or it is not known."""
    container, grant = node.containers.get(key), node.grants.get(key)
    if policy is None or node.released or container is None or grant is None:
        return None
    if container.state is ContainerState.EXITED:
        return None
    if container.desired and container.desired.told:
        return None  # that is told as a size
    whole = container.cpu_milli // 1000
    if whole <= len(grant.exclusive) or not (container.missed or container.qos is QosClass.GUARANTEED):
        return None
    missed = container.missed
    alone = Node(node.topology, node.pods, containers={key: container})
    owed, refusal = _granted(policy, alone, container)
    count = len(owed.exclusive) if owed else 0
    if refusal and missed and container.qos is QosClass.GUARANTEED and exclusive_of(policy):
        count = whole  # it will not come to have them, whatever room there is
    if count <= len(grant.exclusive):
        return None
    why = _missed(missed) if missed else _other(container)
    return Shortfall(
        key=key,
        title=container.title,
        cpus=count,
        has=len(grant.exclusive),
        why=f"{why}; {refusal}" if refusal else why,
        missed=missed is not None,
        since_s=missed.since_s if missed else 0.0,
    )


def _granted(policy: Policy, node: Node, container: Container) -> tuple[Grant | None, str]:
    """What it would get on *node*; why nothing, if it would be refused."""
    try:
        return policy.place(node, container).grants.get(container.key), ""
    except Refused as error:
        return None, str(error)
    except Exception:  # noqa: BLE001 (a stranger's policy: nobody can say)
        return None, ""


def _other(container: Container) -> str:
    if not container.reservation:
        return "criproxy found it running, and leaves it where it is"
    return "it was placed without exclusive CPUs, under another policy or for lack of room"
