"""The fallback policy, which cannot fail: new containers share CPUs, and all others stay where they are.

It decides about events that cannot be refused while the configured policy fails.
"""

from criproxy.errors import NotEnough
from criproxy.model.cpuset import numbered
from criproxy.model.grant import Grant, Layout
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import NOTHING_FREE, Free


class Fallback:
    """Gives no container exclusive CPUs, and takes none from a container that has some.

    Args:
        options: the options of the policy that it replaces, for the available CPUs.
    """

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()

    def place(self, node: Node, container: Container) -> Layout:
        """Return the layout with *container* on the shared CPUs; a container with a grant keeps it."""
        if container.key in node.grants:
            return Layout(node.grants, (f"{container.title} stays where it is: the policy was not asked",))
        part = self.options.within(node)
        shared = part.shared_cpus or node.shared_cpus
        if not shared:
            raise NotEnough(
                f"container {container.title} cannot be placed: every CPU is exclusive to another container"
            )
        reason = f"{container.title} shares {numbered('CPU', shared)}: the policy was not asked"
        return Layout({**node.grants, container.key: Grant(shared, part.topology.mems)}, (reason,))

    def free(self, node: Node) -> Free:
        """Return that nothing can become exclusive."""
        return NOTHING_FREE

    def release(self, node: Node, key: str) -> Layout:
        """Return the layout without *key*; no container moves."""
        return Layout({other: grant for other, grant in node.grants.items() if other != key})
