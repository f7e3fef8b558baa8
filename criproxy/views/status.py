"""How the node is, as values that JSON can say: what `criproxy status` shows. docs/status.md documents the keys.

Pure functions of a node and of what the controller knows beside it, so that a daemon and a command that only has the
database say the same. Sets are in kernel notation, amounts have their unit in the key.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from criproxy.engine.invariants import violations
from criproxy.engine.kept import pod_title
from criproxy.engine.pod_total import total_of_group
from criproxy.engine.reserved import owners_of
from criproxy.model.cpuset import CpuSet, format_cpuset, numbered
from criproxy.model.grant import NO_CPUS, Applied, CpuQuota, Grant, in_place
from criproxy.model.kept import Kept
from criproxy.model.node import Node
from criproxy.model.resources import Interval
from criproxy.model.workload import Container, ContainerState
from criproxy.policy.api import Policy
from criproxy.policy.options import options_of
from criproxy.views.notices import Notice, Refusal, Trouble, Values
from criproxy.views.shortfalls import Shortfall, refusals, shortfalls, undersized, unplaced, unplaced_sentence

MAX_NAMED = 5
"""So many containers that share by an operator's choice, or without having been placed, are named."""
MAX_CONTAINERS = 5_000
"""So many rows one answer has at most; it says how many it leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The node at one moment, with what the controller knows beside it."""

    node: Node
    policy: str = ""
    """Its name in the policy file; empty where it is not known."""
    reserved: CpuSet = NO_CPUS
    reserved_later: Mapping[str, CpuSet] = field(default_factory=dict)
    """Which of *reserved* were exclusive to pods already when the policy file began to reserve them."""
    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    """By container key."""
    starting: Collection[str] = ()
    """Keys of the containers whose start is in flight."""
    notices: Sequence[Notice] = ()
    refusals: Sequence[Refusal] = ()
    """Of creates, the newest first."""
    resizes: Mapping[str, Refusal] = field(default_factory=dict)
    """What the kubelet was told of refused resizes, by container key."""
    placer: Policy | None = None
    """The policy in force; None where it is not known."""
    lacking: Callable[[], Sequence[str]] = tuple
    """Sentences on what the policy file names and the machine has not; may take long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which containers are wanted; everything else in an answer is about the whole node."""

    namespace: str = ""
    pod: str = ""
    exclusive: bool = False
    """Only those that own CPUs."""

    def takes(self, container: Container, grant: Grant | None) -> bool:
        """Whether *container* is wanted."""
        return (
            (not self.namespace or container.namespace == self.namespace)
            and (not self.pod or container.pod_name == self.pod)
            and (not self.exclusive or bool(grant and grant.exclusive))
        )


EVERYBODY = Filter()


def rows(situation: Situation, wanted: Filter = EVERYBODY) -> Iterator[Values]:
    """The containers that are *wanted*, by namespace, pod and name."""
    node = situation.node
    chosen = (c for c in node.containers.values() if wanted.takes(c, node.grants.get(c.key)))
    for container in sorted(chosen, key=lambda c: (c.namespace, c.pod_name, c.name, c.attempt, c.key)):
        yield row(situation, container)


def row(situation: Situation, container: Container) -> Values:
    """One container: who it is, what it asked for, what it shall have and what it has; empty sets without a place."""
    key, node = container.key, situation.node
    grant, applied, trouble = node.grants.get(key), node.applied.get(key), situation.troubles.get(key)
    return {
        "id": "" if key == container.reservation else key,
        "reservation": container.reservation,
        "namespace": container.namespace,
        "pod": container.pod_name,
        "container": container.name,
        "attempt": container.attempt,
        "state": container.state.value,
        "starting": key in situation.starting,
        "qos": container.qos.value,
        "cpu_request_milli": _interval(container.cpu_request_milli),  # CRI does not tell requests exactly
        "cpu_limit_milli": container.cpu_limit_milli,
        "memory_request_bytes": _interval(container.memory_request_bytes),
        "memory_limit_bytes": container.memory_limit_bytes,
        "pod_cpu_milli": of_pod(node, container),
        "placed": grant is not None,
        "cpus": format_cpuset(grant.cpus) if grant else "",
        "mems": format_cpuset(grant.mems) if grant else "",
        "exclusive_cpus": format_cpuset(grant.exclusive) if grant else "",
        "pool": grant.pool if grant else "",
        "cpu_quota": (grant.quota if grant else CpuQuota.LEFT).value,
        "applied_cpus": format_cpuset(applied.cpus) if applied else "",
        "applied_mems": format_cpuset(applied.mems) if applied else "",
        "in_place": is_in_place(container, grant, applied),
        "error": trouble.error if trouble else "",
        "failures": trouble.failures if trouble else 0,
    }


def of_pod(node: Node, container: Container) -> int | None:
    """The CPU that it shares with the containers of its pod, in milli; None where it has what it asks for itself."""
    pod, grant = node.pods.get(container.pod), node.grants.get(container.key)
    if pod is None or grant is None or not grant.exclusive:
        return None
    beside = [other for other in node.containers_of(container.pod) if other.key in node.grants]
    together = [other for other in beside if node.grants[other.key].exclusive & grant.exclusive]
    return total_of_group(node, pod, together) if len(together) > 1 else None


def is_in_place(container: Container, grant: Grant | None, applied: Applied | None) -> bool:
    """Whether it has what it was granted, or has nothing to be anywhere."""
    return grant is None or container.state is ContainerState.EXITED or in_place(grant, applied)


def summary(situation: Situation) -> Values:
    """The node as a whole: CPUs, NUMA nodes, counts, notices."""
    node, topology = situation.node, situation.node.topology
    free = free_cpus(node, situation.placer, situation.reserved)
    return {
        "policy": situation.policy,
        "notices": [notice.to_json() for notice in (*situation.notices, *of_node(situation))],
        "refusals": [refusal.to_json() for refusal in (*refusals(node, situation.resizes), *situation.refusals)],
        "cpus": {
            "allowed": format_cpuset(topology.cpus),
            "exclusive": format_cpuset(node.exclusive_cpus),
            "shared": format_cpuset(node.shared_cpus),
            "free": format_cpuset(free),
            "reserved": format_cpuset(situation.reserved & topology.cpus),
            "isolated": format_cpuset(topology.isolated_cpus & topology.cpus),
            "watched": format_cpuset(node.watched_cpus),
            "offline": format_cpuset(topology.offline_cpus),
        },
        "shared_by_all": _shared_by_all(node),
        "kept": [_kept(node, uid, kept) for uid, kept in sorted(node.kept.items()) if kept.cpus - node.owned_cpus],
        "memory_nodes": format_cpuset(topology.mems),
        "numa_nodes": [
            {
                "id": numa.id,
                "cpus": format_cpuset(numa.cpus & topology.cpus),
                "exclusive_cpus": format_cpuset(numa.cpus & node.exclusive_cpus),
                "shared_cpus": format_cpuset(numa.cpus & node.shared_cpus),
                "free_cpus": format_cpuset(numa.cpus & free),
                "memory_bytes": numa.memory_bytes,
            }
            for numa in topology.nodes
        ],
        "totals": _totals(node),
    }


def free_cpus(node: Node, policy: Policy | None, reserved: CpuSet) -> CpuSet:
    """Those that another container can get for itself, or in a balloon; without *policy* balloons do not count."""
    free = node.shared_cpus - reserved - node.topology.isolated_cpus - node.watched_cpus
    return free - options_of(policy).held(node)


def _shared_by_all(node: Node) -> bool:
    """Whether there are shared containers, and each of them may run on every shared CPU."""
    places = {grant.cpus for grant in node.grants.values() if not grant.exclusive}
    return places == {node.shared_cpus}


def _kept(node: Node, uid: str, kept: Kept) -> Values:
    """CPUs that are kept for a pod; some of its containers may have them again."""
    names = sorted(name for name, cpus in kept.by_name.items() if cpus - node.owned_cpus)
    cpus = format_cpuset(kept.cpus - node.owned_cpus)
    return {"pod": pod_title(node, uid), "uid": uid, "cpus": cpus, "containers": names}


def _totals(node: Node) -> Values:
    alive = [c for c in node.containers.values() if c.state is not ContainerState.EXITED]
    owners = sum(1 for grant in node.grants.values() if grant.exclusive)
    return {
        "pods": len(node.pods),
        "containers": len(node.containers),
        "exited": len(node.containers) - len(alive),
        "exclusive": owners,
        "shared": len(node.grants) - owners,
        "unplaced": sum(1 for c in alive if c.key not in node.grants),
        "unknown": sum(1 for c in alive if c.state is ContainerState.UNKNOWN),
        "not_in_place": sum(1 for c in alive if not is_in_place(c, node.grants.get(c.key), node.applied.get(c.key))),
    }


def of_node(situation: Situation) -> Iterator[Notice]:
    """Notices that follow from the node itself."""
    node = situation.node
    if node.released:
        yield Notice("released", f"the node is released, no container is placed: {node.released}", wrong=False)
    for text in situation.lacking():
        yield Notice("machine", text)
    if situation.policy == "none":
        yield Notice("policy-none", "policy none: no container is placed", wrong=False)
    short = shortfalls(node, situation.placer)
    yield from _unplaced(situation, {each.key for each in short})
    yield from _reserved_later(situation)
    yield from _shares(short)


def _reserved_later(situation: Situation) -> Iterator[Notice]:
    """Containers with exclusive CPUs that were reserved only afterwards."""
    node = situation.node
    for key, pod, owned in owners_of(node, situation.reserved):
        if cpus := owned & situation.reserved_later.get(pod, NO_CPUS):
            title = node.containers[key].title if key in node.containers else key
            has = f"{title} has exclusive {numbered('CPU', cpus)}"
            text = f"{has}, which the policy file reserves now; apply: all moves it"
            yield Notice("reserved-later", text, wrong=False)


def _unplaced(situation: Situation, told: Collection[str]) -> Iterator[Notice]:
    """Containers that share because the policy was not asked, without those *told* as shortfalls."""
    node, policy = situation.node, situation.placer
    found = [key for key in unplaced(node) if key not in told]
    yield from (Notice("shares", unplaced_sentence(node, key, policy)) for key in found[:MAX_NAMED])
    if left := len(found[MAX_NAMED:]):
        more = "1 more container shares" if left == 1 else f"{left} more containers share"
        yield Notice("shares", f"{more} without having been placed, for similar reasons")


def _shares(found: Sequence[Shortfall]) -> Iterator[Notice]:
    """Containers that should have exclusive CPUs: each where something is wrong, else a few."""
    known = [short for short in found if not short.missed]
    yield from (Notice("shares", short.sentence) for short in found if short.missed)
    yield from (Notice("shares", short.sentence, wrong=False) for short in known[:MAX_NAMED])
    if left := known[MAX_NAMED:]:
        yield Notice(
            "shares",
            f"{len(left)} more containers should have exclusive CPUs and share, for similar reasons",
            wrong=False,
        )


def problems(situation: Situation) -> Values:
    """What `status --check` finds: what is wrong, and which updates are just under way, one sentence each."""
    found = [notice.text for notice in (*situation.notices, *of_node(situation)) if notice.wrong]
    apart, node = misplaced(situation), situation.node
    found += [*undersized(node, situation.resizes), *unguarded(node)]
    found += violations(node, situation.reserved, later=situation.reserved_later)
    return {
        "problems": [*found, *(text for text, bad in apart if bad)],
        "under_way": [text for text, bad in apart if not bad],
    }


def unguarded(node: Node) -> Iterator[str]:
    """Watched containers that may run on exclusive CPUs of others; `violations` has all others."""
    for key, applied in node.applied.items():
        foreign = applied.cpus & node.exclusive_cpus
        if foreign and node.is_watched(key) and node.containers[key].state is not ContainerState.EXITED:
            title, cpus = node.containers[key].title, format_cpuset(foreign)
            yield f"{title} has no place and may run on CPUs {cpus}, which are exclusive to another container"


def misplaced(situation: Situation) -> list[tuple[str, bool]]:
    """A sentence about each container that has not what it was granted, and whether its update has failed already."""
    node, found = situation.node, list[tuple[str, bool]]()
    for key, grant in node.grants.items():
        container, applied = node.containers.get(key), node.applied.get(key)
        if container is None or is_in_place(container, grant, applied):
            continue
        trouble = situation.troubles.get(key)
        why = f" ({trouble.failures} times: {trouble.error})" if trouble else ""
        found.append((f"{container.title} {_difference(grant, applied)}{why}", trouble is not None))
    return found


def _difference(grant: Grant, applied: Applied | None) -> str:
    if applied is None:
        return f"should be on CPUs {format_cpuset(grant.cpus)}, and criproxy does not know where it is"
    if applied.cpus != grant.cpus:
        return f"should be on CPUs {format_cpuset(grant.cpus)} and is on {format_cpuset(applied.cpus)}"
    return (
        f"should have memory of NUMA nodes {format_cpuset(grant.mems)} and has memory of {format_cpuset(applied.mems)}"
    )


def _interval(amount: Interval | None) -> list[int] | None:
    return [amount.low, amount.high] if amount else None
