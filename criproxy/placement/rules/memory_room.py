"""What holds of a container's memory under every policy.

A container gets huge pages only from the NUMA nodes that it may use. And it may be resized while it runs: policies
handle growth for the containers that they place. A container that is left alone, or keeps its memory, may still be
restricted to NUMA nodes by an earlier policy; if it grew beyond their memory, it would be killed because of us. If it
shrinks, memory returns to the nodes where it was before.
"""

from collections.abc import Iterable
from dataclasses import replace

from criproxy.model.cpuset import CpuSet, interned, numbered
from criproxy.model.entries import entries_of, with_entries
from criproxy.model.grant import Layout
from criproxy.model.machine.huge_pages import HugePageRequest
from criproxy.model.node import Node
from criproxy.model.text.amounts import format_bytes
from criproxy.placement.alloc.memory.huge_pages import are_missing, promised_bytes, with_huge_pages
from criproxy.placement.alloc.memory.memory import MemoryWish, place_memory, return_memory
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy

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
    text = f"{container.title} has grown: memory from {numbered('NUMA node', more[key].mems)}"
    return replace(layout, grants=more, reasons=(*layout.reasons, text))


def with_pages(node: Node, layout: Layout, key: str) -> Layout:
    """Return the *layout* of a policy with the NUMA nodes of the huge pages that the new container *key* asks for.

    A container whose memory the policy leaves alone may use the pages of every node.
    """
    container, grant = node.containers[key], layout.grants.get(key)
    if not container.huge_pages or grant is None or not grant.mems:
        return layout
    if nowhere := [each for each in container.huge_pages if each.is_nowhere]:
        layout = replace(layout, reasons=(*layout.reasons, f"no NUMA node has {_pages(nowhere)}"))
        container = replace(container, huge_pages=tuple(each for each in container.huge_pages if not each.is_nowhere))
        if not container.huge_pages:
            return layout
    promised = promised_bytes(node.replace(grants=layout.grants), container)
    mems = with_huge_pages(node.topology, promised, container, grant.mems)
    sizes = _pages(container.huge_pages)
    short = ", too few" if are_missing(promised, container, mems) else ""
    if mems == grant.mems:
        have = {each.node for asked in container.huge_pages for each in asked.there if each.total}
        text = f"its {sizes} come from {numbered('NUMA node', mems & have or mems)}{short}"
        return replace(layout, reasons=(*layout.reasons, text))
    home = grant.home_mems and grant.home_mems | (mems - grant.mems)
    changed = with_entries(
        entries_of(node.grants, layout.grants), {key: replace(grant, mems=interned(mems), home_mems=home)}
    )
    text = f"memory also from {numbered('NUMA node', mems - grant.mems)}: {sizes} that it asks for are there{short}"
    return replace(layout, grants=changed, reasons=(*layout.reasons, text))


def _pages(asked: Iterable[HugePageRequest]) -> str:
    return f"huge pages of {' and '.join(format_bytes(each.size_bytes) for each in asked)}"
