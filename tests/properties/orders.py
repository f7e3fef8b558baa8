"""Whether the order in which a policy ranks its candidates is a total one, for any policy that shows how it ranks."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Protocol, runtime_checkable

from criproxy.alloc.rank import Candidate, decider, ranked
from criproxy.errors import BadAnnotation
from criproxy.model.cpuset import CpuSet
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.policy.api import Policy
from criproxy.policy.topology_aware.criteria import Choosing


@runtime_checkable
class Ranks(Protocol):
    """A policy that shows how it ranks."""

    def choosing(self, node: Node, container: Container) -> tuple[Choosing, CpuSet]:
        """How the pools compare for a container, and the isolated CPUs that it may own."""


def ranking_is_total(policy: Policy, node: Node, container: Container | None) -> Iterator[str]:
    """A sentence for all that keeps the candidates for *container* from having exactly one order."""
    if container is None or not isinstance(policy, Ranks):
        return
    try:
        choosing, isolated = policy.choosing(node, container)
    except BadAnnotation:
        return
    yield from order_is_total(choosing.owning(isolated) if choosing.request.owned else choosing.sharing())


def order_is_total(found: Sequence[Candidate]) -> Iterator[str]:
    """No two candidates are alike, all are asked the same, no order of them leads to another, and the key decides."""
    if len({candidate.key for candidate in found}) < len(found):
        yield "two candidates have the same key: either may go first"
    if len({tuple(criterion.name for criterion in candidate.criteria) for candidate in found}) > 1:
        yield "candidates are compared by different criteria"
        return
    order = ranked(found)
    if ranked(reversed(found)) != order:
        yield "the order of the candidates depends on that of the input"
    for better, worse in pairwise(order):
        decided = decider(better, worse)
        if decided not in better.criteria if decided else better.index >= worse.index:
            yield f"nothing says why {better.name} goes before {worse.name}"
