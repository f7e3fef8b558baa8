"""Room for the memory of a container that has another size while it runs.

Policies see to it for those whom they place. Who is left alone, or keeps its memory, may be kept to NUMA nodes since an
earlier policy all the same; if it was to grow there beyond what they have, it would be killed because of us.
"""

from dataclasses import replace

from criproxy.alloc.memory import MemoryWish, place_memory
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import Layout
from criproxy.model.node import Node
from criproxy.policy.api import Policy
from criproxy.policy.options import options_of

_NOWHERE: CpuSet = frozenset()
_AS_IT_IS = MemoryWish(untouched="it was resized")


def with_room(node: Node, layout: Layout, key: str, policy: Policy) -> Layout:
    """The *layout* that *policy* made of *node*, with memory from more NUMA nodes for *key* if it must have them."""
    old, new = node.grants[key], layout.grants.get(key)
    if new is None or new.mems != old.mems:
        return layout
    container, options = node.containers[key], options_of(policy)
    seen, pessimistic = options.within(node), options.rules == "crirm"
    more = place_memory(seen, layout.grants, container, _NOWHERE, _AS_IT_IS, pessimistic=pessimistic).grants
    if more[key].mems == new.mems:
        return layout
    told = f"{container.title} has grown: memory from NUMA nodes {format_cpuset(more[key].mems)}"
    return replace(layout, grants=more, reasons=(*layout.reasons, told))
