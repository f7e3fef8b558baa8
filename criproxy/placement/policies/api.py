"""What a policy is: an object with two methods, and options from the policy file.

A policy reads a `Node` and answers with a `Change`: the grant of a container, the grants of others that it moves, and
why. It does not store, log, send, or remember. What holds under every policy comes before and after it, see
`placement.rules.pipeline`. `README.md` in this folder shows how to write one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import Change, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.alloc.rank import Candidates
from criproxy.placement.options.policy_options import Options, options_of


class Policy(Protocol):
    """Decides where containers run. Same input, same answer."""

    def place(self, node: Node, container: Container) -> Change:
        """The grant of *container*, and those of others that it moves.

        A new container is not in ``node.grants`` yet. A container that is there is placed anew: its size, the policy or
        the machine has changed. It runs, so keep of its CPUs what fits. ``node.shared_cpus`` does not have its
        exclusive CPUs, which it may keep.

        Args:
            node: the node before, as this container may use it: CPUs that are kept for others are not shared, and those
                that it must not get are watched; ``node.containers`` has the container already, with its new size.
            container: the one to place; without a grant in the change it is left alone.

        Raises:
            NotEnough: it does not fit; the text names the container, its request, what is free and where.
            BadAnnotation: its pod asks for something in a way that cannot be understood; see `annotation_parsing`.
        """
        ...

    def release(self, node: Node, left: Grant) -> Change:
        """The grants of others that move because a container has *left* its grant. It must always be possible.

        Args:
            node: the node without this grant.
            left: the grant; its pool is empty where only CPUs have become exclusive or shared.
        """
        ...


@runtime_checkable
class HasPools(Protocol):
    """A policy that divides a machine once, whatever containers come: scenarios and pictures show its parts."""

    def pools(self, topology: Topology) -> Mapping[str, tuple[Grant, ...]]:
        """The CPUs and memory of each pool by name; several where the file asks for several of a kind, in order."""
        ...


@runtime_checkable
class Explains(Protocol):
    """A policy that shows its candidates: `criproxy explain` prints them as a table."""

    def candidates(self, node: Node, container: Container) -> Candidates | None:
        """What `place` chooses from with these arguments, and by what; None where it leaves the container alone.

        It is asked after the decision, from another thread, and never on the way of a call.

        Raises:
            Refused: as `place`, but only where there is nothing to compare.
        """
        ...


@dataclass(frozen=True, slots=True)
class Free:
    """What can become exclusive to new containers."""

    cpus: CpuSet
    """Each of these CPUs can."""
    count: int
    """How many of them together: others must stay shared."""


NOTHING_FREE = Free(frozenset(), 0)


@runtime_checkable
class KnowsFree(Protocol):
    """A policy for which other CPUs can become exclusive than those that are shared and not reserved."""

    def free(self, node: Node) -> Free:
        """What `place` would give to Guaranteed containers that ask for whole CPUs."""
        ...


def free_of(policy: object, node: Node) -> Free:
    """What can become exclusive on *node*: what `status`, `who` and the metrics call free."""
    if node.released:
        return NOTHING_FREE
    if isinstance(policy, KnowsFree):
        return policy.free(node)
    options = options_of(policy)
    cpus = options.within(node).free_cpus(options.reserved(node.topology)) - options.held(node)
    return Free(cpus, len(cpus))


@runtime_checkable
class HasEmptyPools(Protocol):
    """A policy whose pools or balloons may be there without containers."""

    def empty_pools(self, node: Node) -> Mapping[str, CpuSet]:
        """The CPUs of those without containers, by name as in `Grant.pool`."""
        ...


def empty_pools_of(policy: object, node: Node) -> Mapping[str, CpuSet]:
    """The CPUs of pools that are there without containers: CPUs of a pool's class are not idle."""
    return policy.empty_pools(node) if isinstance(policy, HasEmptyPools) else {}


def candidates_of(policy: Policy, node: Node, container: Container) -> Candidates | None:
    """What *policy* chose from, if it shows that and had anything to choose."""
    if not isinstance(policy, Explains):
        return None
    try:
        return policy.candidates(node, container)
    except Refused:  # the refusal says all there is
        return None


@dataclass(frozen=True, slots=True)
class Entry:
    """How to make a policy from its part of the policy file."""

    options: type[Options]
    build: Callable[[Any], Policy]
    """Takes an instance of `options`."""
