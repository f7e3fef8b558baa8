"""The balloons of a node, read from its grants alone.

A container's grant names its balloon and says which CPUs are the balloon's own. There may be hundreds of balloons, and
an event changes one or two: the others are kept from one layout to the next. They are the same as if read anew.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from re import fullmatch
from typing import NamedTuple

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.node import Node, changed_keys
from criproxy.model.workload import Container
from criproxy.placement.policies.balloons.balloon_cpus import shape_of
from criproxy.placement.policies.balloons.kinds import Catalogue
from criproxy.placement.policies.balloons.state import Balloon, State, asked_milli, members, state_of


class _Reading(NamedTuple):
    """A layout, and its balloons."""

    containers: Mapping[str, Container]
    grants: Mapping[str, Grant]
    balloons: Mapping[str, Balloon]
    """By name, with the CPUs that the grants say."""


_NOTHING = _Reading({}, {}, {})


def read(catalogue: Catalogue, node: Node, grants: Mapping[str, Grant]) -> State:
    """The balloons of *node* by its *grants*, those without containers included."""
    last: _Reading = catalogue.last_read[0] if catalogue.last_read else _NOTHING
    balloons = _as_granted(catalogue, node, grants, last)
    catalogue.last_read[:] = [_Reading(node.containers, grants, balloons)]
    others = [g for g in grants.values() if g.exclusive or (g.pool not in balloons and not g.is_preserved)]
    everywhere = node.topology.cpus
    usable = everywhere - node.kept_cpus.union(*(grant.exclusive for grant in others))
    strangers = node.watched_cpus.union(*(grant.cpus for grant in others if grant.cpus != everywhere))
    if not _are_apart(balloons, usable):
        balloons = _parted(_as_granted(catalogue, node, grants, _NOTHING), usable)
    return state_of(catalogue, usable, balloons, NO_CPUS if strangers >= usable else strangers).settled()


def _as_granted(catalogue: Catalogue, node: Node, grants: Mapping[str, Grant], last: _Reading) -> Mapping[str, Balloon]:
    """The balloons by name, as the *grants* say. Those without a change since the *last* time are kept."""
    changed = {*changed_keys(last.grants, grants), *changed_keys(last.containers, node.containers)}
    names = {each[key].pool for each in (last.grants, grants) for key in changed if key in each}
    found = {name: balloon for name, balloon in last.balloons.items() if name not in names}
    keys_of: dict[str, list[str]] = defaultdict(list)
    for key, grant in grants.items():
        if grant.pool in names and not grant.exclusive:
            keys_of[grant.pool].append(key)
    for name, keys in keys_of.items():
        if name not in catalogue.named:
            catalogue.named[name] = _named(catalogue, name)
        if empty := catalogue.named[name]:
            found[name] = _filled(empty, keys, node, grants)
    return found


def _filled(empty: Balloon, keys: Sequence[str], node: Node, grants: Mapping[str, Grant]) -> Balloon:
    """The balloon of the containers with these *keys*."""
    homes = {grants[key].home or grants[key].cpus for key in keys}
    milli = sum(asked_milli(each) for each in members(node, keys))
    home = next(iter(homes)) if len(homes) == 1 else NO_CPUS.union(*homes)
    return Balloon(empty.shape, empty.instance, empty.kind.fixed or home, milli, tuple(keys))


def _are_apart(balloons: Mapping[str, Balloon], usable: CpuSet) -> bool:
    """Whether no CPU is in two balloons or outside *usable*, as it should always be."""
    homes = [balloon.home for balloon in balloons.values()]
    together = NO_CPUS.union(*homes)
    return together <= usable and len(together) == sum(map(len, homes))


def _parted(balloons: Mapping[str, Balloon], usable: CpuSet) -> Mapping[str, Balloon]:
    """The balloons where each CPU is in one of them, the first that has it."""
    taken: set[int] = set()
    found: dict[str, Balloon] = {}
    for name, balloon in balloons.items():
        home = (balloon.home if balloon.kind.fixed else balloon.home - taken) & usable
        taken |= home
        found[name] = replace(balloon, home=home)
    return found


def _named(catalogue: Catalogue, pool: str) -> Balloon | None:
    """The balloon, still empty, that a grant's pool names; None where there is no such type any more."""
    parsed = _parsed(pool)
    kind = catalogue.by_name.get(parsed[0]) if parsed else None
    if parsed is None or kind is None:
        return None
    shape = shape_of(kind, chosen=parsed[2])
    return Balloon(shape, parsed[1]) if shape.chosen == parsed[2] else None


def _parsed(pool: str) -> tuple[str, int, tuple[str, ...]] | None:
    found = fullmatch(r"([^\[\]/]+)\[(0|[1-9]\d{0,5})\]((?:/[^\[\]/]+)*)", pool)
    return (found[1], int(found[2]), tuple(found[3].split("/")[1:])) if found else None
