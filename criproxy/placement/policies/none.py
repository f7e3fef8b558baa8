"""The policies that choose no CPUs: ``none``, also that of a released node, and the fallback, which cannot fail.

The fallback decides about events that cannot be refused while the configured policy fails: new containers share CPUs,
and all others stay where they are.
"""

from criproxy.errors import NotEnough
from criproxy.model.cpuset import numbered
from criproxy.model.grant import Change, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import NOTHING_FREE, Entry, Free


class _NoCpus:
    """A policy that gives no container exclusive CPUs, and moves none."""

    def free(self, node: Node) -> Free:
        """Nothing can become exclusive."""
        return NOTHING_FREE

    def release(self, node: Node, left: Grant) -> Change:
        """No other container moves."""
        return Change({})


class NonePolicy(_NoCpus):
    """Grants nothing; places given under an earlier policy stay until their container goes."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def place(self, node: Node, container: Container) -> Change:
        """*container* gets no grant, and keeps one that it has."""
        had = node.grants.get(container.key)
        reason = f"{container.title} is left alone: {node.released or 'the policy is none'}"
        return Change({container.key: had} if had else {}, (reason,))


class Fallback(_NoCpus):
    """Gives no container exclusive CPUs, and takes none from a container that has some.

    Args:
        options: the options of the policy that it replaces, for the available CPUs.
    """

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()

    def place(self, node: Node, container: Container) -> Change:
        """Return *container* on the shared CPUs; a container with a grant keeps it."""
        if had := node.grants.get(container.key):
            return Change({container.key: had}, (f"{container.title} stays where it is: the policy was not asked",))
        part = self.options.within(node)
        shared = part.shared_cpus or node.shared_cpus
        if not shared:
            text = f"container {container.title} cannot be placed: every CPU is exclusive to another container"
            raise NotEnough(text)
        reason = f"{container.title} shares {numbered('CPU', shared)}: the policy was not asked"
        return Change({container.key: Grant(shared, part.topology.mems)}, (reason,))


ENTRY = Entry(Options, NonePolicy)
