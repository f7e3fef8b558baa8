"""Containers that have less than the policy would grant them on the empty machine, and the CPU that is free.

The controller promotes these as soon as there is room, and `status`, its check and `explain` name them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.node import Node, changed_keys
from criproxy.model.workload import MAY_RUN, Container, ContainerState, Missed, QosClass
from criproxy.placement.options.policy_options import exclusive_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.pipeline import place
from criproxy.placement.rules.pod_total import asks_milli


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A container that should have more exclusive CPUs than it has."""

    container: Container
    cpus: int
    """How many it should have."""
    has: int
    """How many it has."""
    refusal: str
    """Why the policy would refuse it even on the empty machine; empty if it would not."""

    @property
    def missed(self) -> Missed | None:
        """Set if it was created while the policy was not asked: then the shortfall is a problem."""
        return self.container.missed


def unplaced(node: Node) -> list[str]:
    """Return the keys of the shared containers that run, and about which the policy was not asked.

    Some should have exclusive CPUs: `shortfalls` returns those.
    """
    if node.released:
        return []
    running = (each for each in node.containers.values() if each.is_owed_a_place and each.state in MAY_RUN)
    found = ((each.key, node.grants.get(each.key)) for each in running)
    return [key for key, grant in found if grant and not grant.exclusive]


def unplaced_since(containers: Mapping[str, Container], keys: Iterable[str]) -> Mapping[str, float]:
    """Return since when those of *keys* have run without a place, in seconds since the epoch, by the container's life.

    Those of which that is not known are left out.
    """
    found = ((each, each.missed) for key in keys if (each := containers.get(key)))
    marked = ((each, mark.since_s) for each, mark in found if mark and each.is_owed_a_place)
    return {each.life: since_s for each, since_s in marked if since_s and each.state in MAY_RUN}


def unplaced_s(before: Node, after: Node, until_s: float) -> float:
    """Return how long containers ran without a place until *until_s*, in sum, for which a change has ended that."""
    changed = changed_keys(before.containers, after.containers)
    if not (begun_s := unplaced_since(before.containers, changed)):
        return 0.0
    ended = begun_s.items() - unplaced_since(after.containers, changed).items()
    return sum(max(0.0, until_s - since_s) for _, since_s in ended)


def refusal(node: Node, key: str, policy: Policy) -> str:
    """Return why *policy* would refuse one of the `unplaced` containers; empty if it would not."""
    return _granted(policy, node, node.containers[key])[1]


def shortfalls(node: Node, policy: Policy | None) -> list[Shortfall]:
    """Return the shared containers to which *policy* would grant exclusive CPUs on an empty machine.

    This is slow: it asks the policy once for each shared Guaranteed container.
    """
    found = (shortfall(node, policy, key) for key in node.grants)
    return [one for one in found if one]


def shortfall(node: Node, policy: Policy | None, key: str) -> Shortfall | None:
    """Return what the container *key* lacks; None if it lacks nothing, is unknown, or the node is released."""
    container, grant = node.containers.get(key), node.grants.get(key)
    if policy is None or node.released or container is None or grant is None:
        return None
    if container.state is ContainerState.EXITED or (container.desired and container.desired.told):
        return None  # one that lacks a size does not lack exclusive CPUs
    if not (container.missed or container.qos is QosClass.GUARANTEED):
        return None
    container = replace(container, cpu_milli=asks_milli(node, container))
    whole, has = container.cpu_milli // 1000, len(grant.exclusive | _kept_for(node, container))
    if whole <= has:
        return None
    alone = Node(node.topology, node.pods, containers={key: container})
    owed, refused = _granted(policy, alone, container)
    count = len(owed.exclusive) if owed else 0
    if refused and container.qos is QosClass.GUARANTEED and exclusive_of(policy):
        one = replace(container, cpu_milli=1000 + container.cpu_milli % 1000)
        smallest, _ = _granted(policy, alone, one)
        if container.missed or grant.exclusive or (smallest and smallest.exclusive):
            count = whole  # the policy will not grant them on this machine, which may have been larger
    if count <= has:
        return None
    return Shortfall(container, count, len(grant.exclusive), refused)


def _kept_for(node: Node, container: Container) -> CpuSet:
    """Return the CPUs kept for ended siblings, if *container* has no size of its own: what it shares includes them."""
    pod = node.pods.get(container.pod)
    kept = node.kept.get(pod.uid) if pod and container.of_pod else None
    return kept.cpus - node.owned_cpus if kept else NO_CPUS


def _granted(policy: Policy, node: Node, container: Container) -> tuple[Grant | None, str]:
    """Return its grant on *node*, or the reason if it would be refused."""
    try:
        return place(node, container, policy).node.grants.get(container.key), ""
    except Refused as error:
        return None, str(error)
    except Exception:  # noqa: BLE001 (an external policy failed: the grant is unknown)
        return None, ""
