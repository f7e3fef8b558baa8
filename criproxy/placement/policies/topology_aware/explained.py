"""The pools that were compared for a container, and what those without room lack."""

from criproxy.model.cpuset import CpuSet
from criproxy.model.node import Node
from criproxy.model.text.amounts import counted
from criproxy.model.workload import Container
from criproxy.placement.alloc.capacity import shared_milli
from criproxy.placement.alloc.pools import Pool
from criproxy.placement.alloc.rank import ranked
from criproxy.placement.alloc.sharing import RESERVED, Division
from criproxy.placement.policies.candidates import Candidates, Row, compared
from criproxy.placement.policies.parts import lacks_beside_shared
from criproxy.placement.policies.topology_aware.criteria import Choosing, available
from criproxy.placement.policies.topology_aware.reserved import reserved_pool

OF = "pools"


def pools_compared(choosing: Choosing, isolated: CpuSet) -> Candidates:
    """All pools, those with room by their criteria."""
    owns, pools = bool(choosing.request.owned), choosing.room.tree.pools
    order = ranked(choosing.owning(isolated) if owns else choosing.sharing())
    fitting = {candidate.index for candidate in order}
    lacking = [Row(pool.name, lacks=_lacks(choosing, pool, isolated)) for pool in pools if pool.index not in fitting]
    shared = choosing.division.shared_by(pools[0].name, choosing.others.exclusive_cpus)
    if order or owns or choosing.request.strict or not shared:
        return compared(OF, order, lacking)
    note = "no pool has that much left: shared containers ask for more than there is"
    return compared(OF, order, lacking, chosen=pools[0].name, note=note)


def reserved_compared(division: Division, others: Node, container: Container) -> Candidates:
    """The reserved CPUs, and the whole machine where these are too few."""
    pool, free_milli = reserved_pool(division, others, container)
    note = "containers of this namespace or with this annotation share the reserved CPUs"
    missing = shared_milli(container) - free_milli
    rows = [Row(RESERVED, lacks=f"{missing}m" if missing > 0 else "")]
    if pool != RESERVED:
        rows.insert(0, Row(pool))
    return Candidates(OF, (), tuple(rows), pool, note)


def _lacks(choosing: Choosing, pool: Pool, isolated: CpuSet) -> str:
    if not choosing.allows(pool):
        return "closeness to its devices" if choosing.is_around_home(pool) else "the NUMA nodes of its memory"
    return _lacks_exclusive(choosing, pool, isolated) if choosing.request.owned else _lacks_shared(choosing, pool)


def _lacks_shared(choosing: Choosing, pool: Pool) -> str:
    if not choosing.room.shared[pool.index]:
        return "CPUs to share"
    milli, free = choosing.request.shared_milli, choosing.room.free_milli(pool.index)
    return f"{(milli if free < milli else choosing.wanted_milli) - free}m"


def _lacks_exclusive(choosing: Choosing, pool: Pool, isolated: CpuSet) -> str:
    request = choosing.request
    if request.isolated_only:
        missing = request.owned - len(isolated & pool.cpus)
        return counted(missing, "isolated CPU") if missing > 0 else "CPUs to share"
    if not choosing.division.own_sharable():
        return "CPUs that can be exclusive"
    beside = request.owned - available(choosing.room, request.shared_milli)
    if (missing := choosing.missing_cpus(pool)) > 0:
        of_all = pool.index == 0  # of the whole machine, what shared containers need is missing as well
        return counted(max(missing, beside) if of_all else missing, "CPU")
    return lacks_beside_shared(beside)
