"""The policy ``none``: it places no container. Messages pass as the kubelet wrote them."""

from criproxy.model.grant import Layout
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import NOTHING_FREE, Free
from criproxy.placement.policies.entry import Entry


class NonePolicy:
    """Grants nothing; places given under an earlier policy stay until their container goes."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def place(self, node: Node, container: Container) -> Layout:
        """The same layout: *container* gets no grant."""
        return Layout(node.grants, (f"{container.title} is left alone: the policy is none",))

    def free(self, node: Node) -> Free:
        """Nothing: no container gets exclusive CPUs."""
        return NOTHING_FREE

    def release(self, node: Node, key: str) -> Layout:
        """The layout without *key*."""
        return Layout({other: grant for other, grant in node.grants.items() if other != key})


ENTRY = Entry(Options, NonePolicy)
