"""Which containers have less than the policy would give them: asked about the empty machine.

The controller promotes these as soon as there is room, and `status`, its check and `explain` name them.
"""

from dataclasses import dataclass

from criproxy.engine.complete import complete
from criproxy.engine.pod_total import total_shared_by
from criproxy.errors import Refused
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Missed, QosClass
from criproxy.policy.api import Policy
from criproxy.policy.exclusive import exclusive_of


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A container that should have exclusive CPUs, and shares."""

    container: Container
    cpus: int
    """How many it should have."""
    has: int
    """How many it has."""
    refusal: str
    """Why the policy would refuse it even there; empty where it would not."""
    pod_cpu_milli: int | None = None
    """The CPU that all containers of its pod share, if it is less than it asks for itself; else None."""

    @property
    def missed(self) -> Missed | None:
        """Set where it came while the policy was not asked: then something is wrong, not only different."""
        return self.container.missed


def unplaced(node: Node) -> list[str]:
    """The keys of the containers that share where there was room when the policy was not asked about them.

    Some should own CPUs: those `shortfalls` has.
    """
    if node.released:
        return []
    alive = (
        each for each in node.containers.values() if each.is_owed_a_place and each.state is not ContainerState.EXITED
    )
    found = ((each.key, node.grants.get(each.key)) for each in alive)
    return [key for key, grant in found if grant and not grant.exclusive]


def refusal(node: Node, key: str, policy: Policy) -> str:
    """Why *policy* would refuse one of those `unplaced`; empty where it would not."""
    return _granted(complete(policy), node, node.containers[key])[1]


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
        return None  # what it lacks is a size
    whole = container.cpu_milli // 1000
    if whole <= len(grant.exclusive) or not (container.missed or container.qos is QosClass.GUARANTEED):
        return None
    alone = Node(node.topology, node.pods, containers={key: container})
    owed, refused = _granted(policy, alone, container)
    count = len(owed.exclusive) if owed else 0
    if refused and container.missed and container.qos is QosClass.GUARANTEED and exclusive_of(policy):
        count = whole  # it will not come to have them, whatever room there is
    if count <= len(grant.exclusive):
        return None
    total = total_shared_by(node, container)
    less = total if total is not None and total < container.cpu_milli else None
    return Shortfall(container, count, len(grant.exclusive), refused, less)


def _granted(policy: Policy, node: Node, container: Container) -> tuple[Grant | None, str]:
    """What it would get on *node*; why nothing, if it would be refused."""
    try:
        return policy.place(node, container).grants.get(container.key), ""
    except Refused as error:
        return None, str(error)
    except Exception:  # noqa: BLE001 (a stranger's policy: nobody can say)
        return None, ""
