"""What must be true of two nodes, one after the other, and of what a policy does with one.

As with `placement.invariants`, each function yields one sentence for every violation.
"""

from collections.abc import Iterator, Mapping

from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.alloc.memory.place_memory import _machine
from criproxy.placement.decision import Decision
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerGone, Event
from criproxy.placement.invariants import title_of
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy


def promised_beyond(node: Node, *, pessimistic: bool = False) -> Mapping[CpuSet, int]:
    """Sets of NUMA nodes of which more is promised than they have, and by how many bytes; see `place_memory`.

    All nodes together are never among them: limits may add up to more than a machine has. Others only after what
    moves no memory: containers were taken in, or the machine or the policy has changed.
    """
    machine = _machine(node.topology, pessimistic)
    promises = machine.crowds.of(node, node.grants).promises
    return {machine.memory.nodes(zone): size for zone, size in promises.over(machine.memory.all)}


def memory_stays(before: Node, after: Node) -> Iterator[str]:
    """A new policy moves no memory; only a release, which the policy none is, lets it go everywhere."""
    for key, grant in before.grants.items():
        if key in after.grants and after.grants[key].mems != grant.mems and not after.released:
            nodes = format_cpuset(grant.mems), format_cpuset(after.grants[key].mems)
            yield f"the memory of {title_of(after, key)} moves from NUMA nodes {nodes[0]} to {nodes[1]}"


def memory_is_promised_once(before: Node, after: Node) -> Iterator[str]:
    """Of no set of NUMA nodes more is promised than it has, unless it was so before.

    Not for events that tell of the machine, the policy, or of what was found: these move no memory.
    """
    known = promised_beyond(before)
    for mems, size in promised_beyond(after).items():
        if size > known.get(mems, 0):
            yield f"{size} bytes too much are promised on NUMA nodes {format_cpuset(mems)}"


def step_is_deterministic(node: Node, event: Event, policy: Policy, decision: Decision) -> Iterator[str]:
    """The same event leads to the same *decision* once more."""
    if step(node, event, policy) != decision:
        yield f"two steps by the same {type(event).__name__} differ"


def release_gives_back(node: Node, key: str, policy: Policy) -> Iterator[str]:
    """When the container *key* goes, no other one loses exclusive CPUs, and those of *key* are there for all.

    Those who shared the CPUs of its pod with it may have CPUs of their own afterwards, and those of a pod with a total
    may get back what they gave up for it.
    """
    after = step(node, ContainerGone(key), policy).node
    together = _shared_with(node, key)
    others = NO_CPUS.union(
        *(grant.exclusive for other, grant in node.grants.items() if other != key and other not in together),
        *(after.grants[other].exclusive for other in together if other in after.grants),
    )
    if after.owned_cpus != others or not after.kept_cpus <= node.exclusive_cpus:
        wrong = format_cpuset((after.owned_cpus ^ others) | (after.kept_cpus - node.exclusive_cpus))
        yield f"after {title_of(node, key)} went, CPUs {wrong} are owned or free as they should not be"


def _shared_with(node: Node, key: str) -> frozenset[str]:
    """The other containers of the pod of *key*, if some of that have exclusive CPUs together, or if it has a total."""
    container = node.containers.get(key)
    if container is None:
        return frozenset()
    beside = [each.key for each in node.containers_of(container.pod) if each.key in node.grants]
    owned = [node.grants[each].exclusive for each in beside if node.grants[each].exclusive]
    pod = node.pods.get(container.pod)
    is_group = sum(map(len, owned)) > len(NO_CPUS.union(*owned)) or (pod and pod.cap_milli is not None)
    return frozenset(beside) - {key} if is_group else frozenset()


def departure_undoes_arrival(node: Node, new: Container, policy: Policy) -> Iterator[str]:
    """A container that comes and goes leaves the capacities as they were: what is owned, what is shared, by whom.

    *new* must have a name of its own in its pod. One that does not fit changes nothing.
    """
    try:
        during = step(node, ContainerCreating(new), policy).node
    except Refused:
        return
    after = step(during, ContainerGone(new.key), policy).node
    pod = node.pods.get(new.pod)
    if pod and (pod.uid in node.kept or (new.pod in during.pods_with_exclusive and pod.cap_milli is not None)):
        return  # its pod gives up what it keeps beyond its total; its siblings may have made room, or got CPUs with it
    if (after.exclusive_cpus, after.shared_cpus) != (node.exclusive_cpus, node.shared_cpus):
        wrong = format_cpuset(after.exclusive_cpus ^ node.exclusive_cpus)
        yield f"after {new.title} came and went, other CPUs are owned: {wrong}"
    if after.containers.keys() != node.containers.keys() or after.grants.keys() != node.grants.keys():
        yield f"after {new.title} came and went, others hold places"
    elif not _waits_for_room(node, policy):  # who does may have found some
        yield from _moved_memory(node, after, f"after {new.title} came and went")


def _waits_for_room(node: Node, policy: Policy) -> bool:
    """Whether a container has memory elsewhere, or would, if the policy placed all of them anew."""
    options = options_of(policy)
    beyond = promised_beyond(options.within(node), pessimistic=options.rules == "crirm")
    return bool(beyond) or any(grant.home_mems for grant in node.grants.values())


def _moved_memory(before: Node, after: Node, when: str) -> Iterator[str]:
    for key, grant in before.grants.items():
        if after.grants[key].with_memory_of(grant) is not after.grants[key]:
            nodes = format_cpuset(grant.mems), format_cpuset(after.grants[key].mems)
            yield f"{when}, {title_of(before, key)} has memory from NUMA nodes {nodes[1]} in place of {nodes[0]}"
