"""The answer of `criproxy who`: which containers may run on a CPU, and its other uses. docs/status.md has the keys.

CPUs with equal descriptions are one row: on a large node, most of them are equal.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from criproxy.api.views.situation import Situation, argument, identity, in_order
from criproxy.errors import UsageError
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.text.notices import Values
from criproxy.model.workload import Container, ContainerState
from criproxy.placement.rules.kept import pod_title

MAX_CPUS_CHARS = 4_096
"""The longest argument ``cpus``: longer than the list of all CPUs of any machine."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a container may run."""

    container: Container
    desired: CpuSet
    applied: CpuSet
    exclusive: CpuSet
    watched: bool

    @classmethod
    def of(cls, node: Node, container: Container) -> Self:
        """Read it from *node*; a container without a grant is desired where it is."""
        grant, applied = node.grants.get(container.key), node.applied.get(container.key)
        applied_cpus = applied.cpus if applied else NO_CPUS
        return cls(
            container=container,
            desired=grant.cpus if grant else applied_cpus,
            applied=applied_cpus,
            exclusive=grant.exclusive if grant else NO_CPUS,
            watched=node.is_watched(container.key),
        )


class _Use(NamedTuple):
    """How one container uses one CPU."""

    key: str
    """The container's."""
    desired: bool
    applied: bool
    exclusive: bool


class _Description(NamedTuple):
    """All that a row says of a CPU, except its number."""

    numa_node: int | None = None
    kinds: tuple[str, ...] = ()
    """Keys of `_sets`, or ``absent``."""
    kept_for: tuple[str, ...] = ()
    """The titles of pods."""
    uses: tuple[_Use, ...] = ()


def collect(situation: Situation, arguments: Mapping[str, Any]) -> Values:
    """Return the answer of `who`: argument ``cpus``, in kernel notation.

    Raises:
        UsageError: the argument is missing, or no list of CPUs.
    """
    cpus = read_cpus(argument(arguments, "cpus", ""))
    return {"notices": [notice.to_json() for notice in situation.notices], **to_values(situation, cpus)}


def read_cpus(text: str) -> CpuSet:
    """Return the CPUs of the argument ``cpus``, in kernel notation.

    Raises:
        UsageError: *text* is no list of CPUs, or is empty or too long.
    """
    try:
        cpus = parse_cpuset(text) if len(text) <= MAX_CPUS_CHARS else None
    except ValueError as error:
        raise UsageError(f"which CPUs? {error}") from error
    if not cpus:
        raise UsageError("which CPUs? Name one or more, such as 3 or 0-7,16" if cpus is not None else "too many CPUs")
    return cpus


def to_values(situation: Situation, cpus: CpuSet) -> Values:
    """Return the rows about *cpus*, ordered by the first CPU of each; CPUs that the machine lacks come last."""
    node = situation.node
    running = (each for each in node.containers.values() if each.state is not ContainerState.EXITED)
    places = {container.key: _Place.of(node, container) for container in in_order(running)}
    sets = _sets(situation)
    known = cpus & (node.topology.online_cpus | node.topology.offline_cpus | node.topology.cpus)
    cpus_by_description = dict[_Description, set[int]]()
    for cpu in sorted(known):
        cpus_by_description.setdefault(_describe(cpu, node, sets, places), set()).add(cpu)
    if absent := cpus - known:
        cpus_by_description[_Description(kinds=("absent",))] = {*absent}
    rows = [_row(places, description, equal) for description, equal in cpus_by_description.items()]
    return {"asked_cpus": format_cpuset(cpus), "rows": rows}


def _describe(cpu: int, node: Node, sets: Mapping[str, CpuSet], places: Mapping[str, _Place]) -> _Description:
    return _Description(
        numa_node=next((numa.id for numa in node.topology.nodes if cpu in numa.cpus), None),
        kinds=tuple(kind for kind, members in sets.items() if cpu in members),
        kept_for=tuple(_kept_for(node, cpu)),
        uses=tuple(
            _Use(key, cpu in place.desired, cpu in place.applied, cpu in place.exclusive)
            for key, place in places.items()
            if cpu in place.desired or cpu in place.applied
        ),
    )


def _sets(situation: Situation) -> dict[str, CpuSet]:
    """Return the CPUs of each kind; a CPU may be of several."""
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
    """Yield the titles of the pods for which *cpu* is kept while none of their containers has it."""
    if cpu not in node.owned_cpus:
        yield from (pod_title(node, uid) for uid, kept in sorted(node.kept.items()) if cpu in kept.cpus)


def _row(places: Mapping[str, _Place], description: _Description, cpus: set[int]) -> Values:
    return {
        "cpus": format_cpuset(cpus),
        "numa_node": description.numa_node,
        "kinds": [*description.kinds],
        "kept": [*description.kept_for],
        "containers": [_container(places[use.key], use) for use in description.uses],
    }


def _container(place: _Place, use: _Use) -> Values:
    container = place.container
    return {
        **identity(container),
        "state": container.state.value,
        "exclusive": use.exclusive,
        "desired": use.desired,
        "applied": use.applied,
        "watched": place.watched,
        "desired_cpus": format_cpuset(place.desired),
        "applied_cpus": format_cpuset(place.applied),
    }
