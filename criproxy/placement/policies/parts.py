"""The parts of the machine that are compared where CPUs are chosen from all of it, as by the policy ``static``."""

from collections.abc import Iterable

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, numbered
from criproxy.model.grant import Change
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node, without
from criproxy.model.text.amounts import counted
from criproxy.model.text.bounded import bounded_text
from criproxy.model.workload import Container
from criproxy.placement.alloc.cpus import Part, Taste, parts_for
from criproxy.placement.alloc.rank import Candidate, Candidates, Criterion, Row, Unit, compared, ranked
from criproxy.placement.policies.api import Policy

OF = "parts of the machine"
_MOST_UNMOVED = 2
"""How many containers that criproxy does not move a refusal names."""
_TITLE_CHARS = 200


def parts_compared(
    topology: Topology, free: CpuSet, count: int, taste: Taste, available: int | None = None
) -> Candidates:
    """The parts of the machine with free CPUs.

    Args:
        topology: the machine.
        free: CPUs that may be taken.
        count: how many are wanted.
        taste: what is wanted of them beside.
        available: how many of them can be had, where these are fewer than *count*: the container gets none then.
    """
    parts = parts_for(topology, free, count, taste)
    enough = [part for part in parts if len(part.cpus) >= count] if available is None else []
    order = ranked(_candidate(index, part, taste) for index, part in enumerate(enough))
    most = count if available is None else available
    lacking = [Row(part.name, lacks=_lacks(part, count, most)) for part in parts if part not in enough]
    return compared(OF, order, lacking)


def own_kept(own: CpuSet, missing: int) -> Candidates:
    """For a container that has exclusive CPUs already and keeps them: the policy chooses no part of the machine."""
    name = f"around its own, {format_cpuset(own)}"
    note = "it keeps its CPUs, and gets more from their cores, then from their NUMA nodes, then from the next ones"
    row = Row(name, lacks=counted(missing, "CPU") if missing > 0 else "")
    return Candidates(OF, (), (row,), "" if missing > 0 else name, note)


def _candidate(index: int, part: Part, taste: Taste) -> Candidate:
    nodes, liked, size, first = part.order
    preferred = [Criterion("it has more of the CPUs that are preferred", liked, Unit.MORE)] if taste.first else []
    criteria = (
        Criterion("it needs fewer NUMA nodes", nodes, Unit.FEWER),
        *preferred,
        Criterion("it has fewer free CPUs", size, Unit.FEWER),
        Criterion("it begins with a lower CPU", first, Unit.FEWER),
    )
    return Candidate(index, part.name, criteria)


def _lacks(part: Part, count: int, available: int) -> str:
    missing = count - len(part.cpus)
    return counted(missing, "CPU") if missing > 0 else lacks_beside_shared(count - available)


def lacks_beside_shared(missing: int) -> str:
    """What a candidate lacks whose CPUs are there, but not beside what shared containers need."""
    return f"{counted(missing, 'CPU')} that shared containers can spare"


def by_node(topology: Topology, free: CpuSet) -> str:
    """The *free* CPUs of each NUMA node, for sentences of refusals.

    Each set has the word CPU before it: a single number could be read as how many there are.
    """
    where = (
        f"{numbered('CPU', node.cpus & free)} on NUMA node {node.id}" for node in topology.nodes if node.cpus & free
    )
    return ", ".join(where) or "none on any NUMA node"


def unmoved(node: Node, cpus: CpuSet) -> str:
    """Where containers run that criproxy does not move, with the names of those on the most CPUs, for refusals.

    Args:
        node: the node.
        cpus: the CPUs that they withhold.
    """
    keys = [key for key in node.applied if node.is_watched(key)]
    names = names_by_size(node, keys, cpus)
    return f"containers that criproxy does not move run on {numbered('CPU', cpus)} ({names})"


def names_by_size(node: Node, keys: Iterable[str], cpus: CpuSet) -> str:
    """The names of the containers with the most of *cpus*, and how many others have some of them."""
    sizes = ((len(node.applied[key].cpus & cpus), key) for key in keys)
    titles = [title for _, title in sorted((-count, node.containers[key].title) for count, key in sizes if count)]
    names = ", ".join(bounded_text(title, _TITLE_CHARS) for title in titles[:_MOST_UNMOVED])
    return names + (f" and {len(titles) - _MOST_UNMOVED} more" if len(titles) > _MOST_UNMOVED else "")


def left_alone(policy: Policy, node: Node, container: Container, reasons: tuple[str, ...]) -> Change:
    """The answer that *container* gets no grant, and others what it leaves if it had one."""
    if (had := node.grants.get(container.key)) is None:
        return Change({}, reasons)
    return Change(policy.release(node.replace(grants=without(node.grants, (container.key,))), had).grants, reasons)


def no_shared_cpu(topology: Topology, container: Container) -> NotEnough:
    """The refusal of a shared container where all CPUs that a policy uses are exclusive since an earlier policy.

    Args:
        topology: what the policy uses of the machine.
        container: the refused one.
    """
    cpus = format_cpuset(topology.cpus)
    return NotEnough(f"container {container.title} shares CPUs, but all that it may use ({cpus}) are exclusive")
