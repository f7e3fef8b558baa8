"""What holds of a container's memory under every policy.

A container gets huge pages only from the NUMA nodes that it may use. And it may be resized while it runs: policies
handle growth for the containers that they place. A container that is left alone, or keeps its memory, may still be
restricted to NUMA nodes by an earlier policy; if it grew beyond their memory, it would be killed because of us. If it
shrinks, memory returns to the nodes where it was before.
"""

from collections.abc import Iterable
from dataclasses import replace

from criproxy.model.cpuset import interned, numbered
from criproxy.model.grant import Reason
from criproxy.model.machine.hardware import HugePageRequest
from criproxy.model.node import Node, changed_keys, with_changes
from criproxy.model.text.amounts import format_bytes
from criproxy.model.workload import Container
from criproxy.placement.alloc.memory.place_memory import MemoryWish, place_memory, return_memory
from criproxy.placement.alloc.memory.promised import are_missing, promised_bytes, with_huge_pages
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.ask import Placed

_AS_IT_IS = MemoryWish(untouched="it was resized")


def with_room(before: Node, placed: Placed, container: Container, policy: Policy) -> Placed:
    """Return *placed*, which *policy* made from *before*, with memory for the new size of *container*.

    It gets more NUMA nodes if necessary; it and others return to fewer nodes if these have room again.
    """
    options = options_of(policy)
    seen, pessimistic = options.within(before), options.rules == "crirm"
    grants, reasons = placed.node.grants, placed.reasons
    old, new = before.grants[container.key], grants.get(container.key)
    if new and new.mems == old.mems:
        news = {key: grants[key] for key in {container.key, *changed_keys(seen.grants, grants)} if key in grants}
        more = place_memory(seen, news, container, frozenset(), _AS_IT_IS, pessimistic=pessimistic).grants
        if (mems := more[container.key].mems) != new.mems:
            text = f"{container.title} has grown: memory from {numbered('NUMA node', mems)}"
            grants, reasons = with_changes(grants, more), (*reasons, Reason(container.key, text))
    back = return_memory(seen if grants is seen.grants else seen.replace(grants=grants), {}, pessimistic=pessimistic)
    if back.grants:
        grants, reasons = with_changes(grants, back.grants), (*reasons, *back.reasons_about(container.key))
    return placed if grants is placed.node.grants else Placed(placed.node.replace(grants=grants), reasons, placed.shown)


def with_pages(placed: Placed, container: Container) -> Placed:
    """Return *placed* with the NUMA nodes of the huge pages that the new *container* asks for.

    A container whose memory the policy leaves alone may use the pages of every node.
    """
    node, key = placed.node, container.key
    grant = node.grants.get(key)
    if not container.huge_pages or grant is None or not grant.mems:
        return placed
    if nowhere := [each for each in container.huge_pages if each.is_nowhere]:
        placed = _with_reason(placed, key, f"no NUMA node has {_pages(nowhere)}")
        container = replace(container, huge_pages=tuple(each for each in container.huge_pages if not each.is_nowhere))
        if not container.huge_pages:
            return placed
    promised = promised_bytes(node, container)
    mems = with_huge_pages(node.topology, promised, container, grant.mems)
    sizes = _pages(container.huge_pages)
    short = ", too few" if are_missing(promised, container, mems) else ""
    if mems == grant.mems:
        have = {each.node for asked in container.huge_pages for each in asked.there if each.total}
        return _with_reason(placed, key, f"its {sizes} come from {numbered('NUMA node', mems & have or mems)}{short}")
    home = grant.home_mems and grant.home_mems | (mems - grant.mems)
    changed = {**node.grants, key: replace(grant, mems=interned(mems), home_mems=home)}
    text = f"memory also from {numbered('NUMA node', mems - grant.mems)}: {sizes} that it asks for are there{short}"
    return _with_reason(replace(placed, node=node.replace(grants=changed)), key, text)


def _with_reason(placed: Placed, key: str, text: str) -> Placed:
    return replace(placed, reasons=(*placed.reasons, Reason(key, text)))


def _pages(asked: Iterable[HugePageRequest]) -> str:
    return f"huge pages of {' and '.join(format_bytes(each.size_bytes) for each in asked)}"
