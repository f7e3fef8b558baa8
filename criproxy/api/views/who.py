"""Who may run on a CPU, and what else it is: what `criproxy who` shows. docs/status.md documents the keys.

CPUs of which the same is to be said are one row: on a large node most of them are.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from criproxy.api.views.situation import Situation, argument, identity, in_order
from criproxy.errors import UsageError
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.text.notices import Values
from criproxy.model.workload import Container, ContainerState
from criproxy.placement.rules.kept import pod_title

MAX_TEXT = 4_096
"""Characters of a list of CPUs that somebody asks for: more than all CPUs of a machine take."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a container may run."""

    container: Container
    desired: CpuSet
    applied: CpuSet
    exclusive: CpuSet
    watched: bool

    @classmethod
    def of(cls, node: Node, container: Container) -> "_Place":
        grant, applied = node.grants.get(container.key), node.applied.get(container.key)
        has = applied.cpus if applied else NO_CPUS
        wanted, owned = (grant.cpus, grant.exclusive) if grant else (has, NO_CPUS)
        return cls(container, wanted, has, owned, node.is_watched(container.key))


_Here = tuple[str, bool, bool, bool]
"""The key of a container, and whether one CPU is in its place, is in its cgroup, and is exclusive to it."""
_Said = tuple[int | None, tuple[str, ...], tuple[str, ...], tuple[_Here, ...]]
"""All that is said of a CPU: its NUMA node, its kinds, the pods for which it is kept, and the containers."""


def collect(situation: Situation, arguments: Mapping[str, Any]) -> Values:
    """Return the answer of `who`: argument ``cpus``, in kernel notation.

    Raises:
        UsageError: the argument is missing, or no list of CPUs.
    """
    cpus = read_cpus(argument(arguments, "cpus", ""))
    return {"notices": [notice.to_json() for notice in situation.notices], **to_values(situation, cpus)}


def read_cpus(text: str) -> CpuSet:
    """The CPUs that somebody asks for, in kernel notation.

    Raises:
        UsageError: it is none, or no list.
    """
    try:
        cpus = parse_cpuset(text) if len(text) <= MAX_TEXT else None
    except ValueError as error:
        raise UsageError(f"which CPUs? {error}") from error
    if not cpus:
        raise UsageError("which CPUs? Name one or more, such as 3 or 0-7,16" if cpus is not None else "too many CPUs")
    return cpus


def to_values(situation: Situation, cpus: CpuSet) -> Values:
    """What is to be said of *cpus*, in rows of CPUs of which the same is to be said."""
    node = situation.node
    alive = (c for c in node.containers.values() if c.state is not ContainerState.EXITED)
    places = {container.key: _Place.of(node, container) for container in in_order(alive)}
    sets = _sets(situation)
    known = cpus & (node.topology.online_cpus | node.topology.offline_cpus | node.topology.cpus)
    alike = dict[_Said, set[int]]()
    for cpu in sorted(known):
        kinds = tuple(word for word, members in sets.items() if cpu in members)
        here = tuple(
            (key, cpu in place.desired, cpu in place.applied, cpu in place.exclusive)
            for key, place in places.items()
            if cpu in place.desired or cpu in place.applied
        )
        numa_node = next((numa.id for numa in node.topology.nodes if cpu in numa.cpus), None)
        alike.setdefault((numa_node, kinds, tuple(_kept_for(node, cpu)), here), set()).add(cpu)
    if absent := cpus - known:
        alike[None, ("absent",), (), ()] = {*absent}
    rows = [_row(places, said, format_cpuset(members)) for said, members in alike.items()]
    return {"asked_cpus": format_cpuset(cpus), "rows": rows}


def _sets(situation: Situation) -> dict[str, CpuSet]:
    """The CPUs of each kind; a CPU may be of several."""
    node, topology = situation.node, situation.node.topology
    return {
        "offline": topology.offline_cpus,
        "forbidden": topology.online_cpus - topology.cpus,
        "exclusive": node.exclusive_cpus,
        "shared": node.shared_cpus,
        "free": situation.free or NO_CPUS,
        "reserved": situation.reserved & topology.cpus,
        "isolated": topology.isolated_cpus & topology.cpus,
        "watched": node.watched_cpus,
    }


def _kept_for(node: Node, cpu: int) -> Iterator[str]:
    """The pods for which *cpu* is kept while none of their containers has it."""
    if cpu not in node.owned_cpus:
        yield from (pod_title(node, uid) for uid, kept in sorted(node.kept.items()) if cpu in kept.cpus)


def _row(places: dict[str, _Place], said: _Said, cpus: str) -> Values:
    numa_node, kinds, kept, here = said
    containers = [_container(places[key], *rest) for key, *rest in here]
    return {"cpus": cpus, "numa_node": numa_node, "kinds": [*kinds], "kept": [*kept], "containers": containers}


def _container(place: _Place, desired: bool, applied: bool, exclusive: bool) -> Values:
    container = place.container
    return {
        **identity(container),
        "state": container.state.value,
        "exclusive": exclusive,
        "desired": desired,
        "applied": applied,
        "watched": place.watched,
        "desired_cpus": format_cpuset(place.desired),
        "applied_cpus": format_cpuset(place.applied),
    }
