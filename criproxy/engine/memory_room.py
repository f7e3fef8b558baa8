"""Memory for a container that is resized while it runs: more NUMA nodes if it grows, and back if there is room again.

Policies handle growth for the containers that they place. A container that is left alone, or keeps its memory, may
still be restricted to NUMA nodes by an earlier policy; if it grew beyond their memory, it would be killed because of
us.
"""

from dataclasses import replace

from criproxy.alloc.memory import MemoryWish, place_memory, return_memory
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import Layout
from criproxy.model.node import Node
from criproxy.policy.api import Policy
from criproxy.policy.options import options_of

_NOWHERE: CpuSet = frozenset()
_AS_IT_IS = MemoryWish(untouched="it was resized")


def with_room(node: Node, layout: Layout, key: str, policy: Policy) -> Layout:
    """Return the *layout* that *policy* made from *node*, with memory for the new size of the container *key*.

    It gets more NUMA nodes if necessary; it and others return to fewer nodes if these have room again.
    """
    options = options_of(policy)
    seen, pessimistic = options.within(node), options.rules == "crirm"
    layout = _grown(seen, layout, key, pessimistic=pessimistic)
    back = return_memory(seen, layout.grants, pessimistic=pessimistic)
    if not back.reasons:
        return layout
    return replace(layout, grants=back.grants, reasons=(*layout.reasons, *back.reasons))


def _grown(seen: Node, layout: Layout, key: str, *, pessimistic: bool) -> Layout:
    old, new = seen.grants[key], layout.grants.get(key)
    if new is None or new.mems != old.mems:
        return layout
    container = seen.containers[key]
    more = place_memory(seen, layout.grants, container, _NOWHERE, _AS_IT_IS, pessimistic=pessimistic).grants
    if more[key].mems == new.mems:
        return layout
    text = f"{container.title} has grown: memory from NUMA nodes {format_cpuset(more[key].mems)}"
    return replace(layout, grants=more, reasons=(*layout.reasons, text))
