"""Runs vectors, each by the rules that it applies to, and tells how they went."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from criproxy.model.machine.huge_pages import HugePages
from criproxy.model.machine.topology import Topology
from criproxy.simulate.scenario.seen import Moment, Placed
from criproxy.simulate.scenario.vectors import Vector
from criproxy.simulate.scenario.world import Asked, Failure, SettingsOf, Told, World


@dataclass(frozen=True, slots=True)
class Result:
    """How one run of a vector went."""

    vector: Vector
    rules: str
    failure: str = ""
    """What was expected and what is, in a sentence; empty if all is as expected."""
    line: int = 0
    """Where in the file that is; 0 without a failure."""
    placement: Mapping[str, Placed] = field(default_factory=dict)
    """Where everybody is at the end, or at the failure; by the container's name, in the order in which they came."""
    told: tuple[Told, ...] = ()
    checked: int = 0
    """Assertions that hold."""
    moments: tuple[Moment, ...] = ()
    """Where everybody was at each step that expects something, and at the end or the failure."""
    topology: Topology | None = None
    """The machine; None of a unit vector."""
    asked: tuple[Asked, ...] = ()
    """The decisions about newcomers, in their order."""


@dataclass(frozen=True, slots=True)
class Instead:
    """What to use in place of what the vectors say."""

    topology: Topology | None = None
    settings_of: SettingsOf | None = None
    huge_pages: tuple[HugePages, ...] = ()
    """Of the topology."""
    rules: tuple[str, ...] = ()


def runs(vectors: Iterable[Vector], instead: Instead = Instead()) -> list[tuple[Vector, str]]:
    """Each vector with each of the rules by which it is to be run; a unit vector once, without any."""
    return [
        (vector, rules) for vector in vectors for rules in (("",) if vector.unit else instead.rules or vector.rules)
    ]


def run(vector: Vector, rules: str, instead: Instead = Instead()) -> Result:
    """Run *vector* by *rules* up to its first failure; of a unit vector there is nothing to run."""
    if vector.unit:
        return Result(vector, rules)
    topology = instead.topology or vector.topology
    assert topology is not None, "files with mistakes are not run"
    pages = instead.huge_pages if instead.topology else vector.huge_pages
    world = World(topology, rules, instead.settings_of, pages)
    failure, line = "", 0
    try:
        _live(vector, world)
    except Failure as error:
        failure, line = str(error), error.line
    world.note()
    told, moments = tuple(world.told), tuple(world.moments)
    placed, asked = world.seen().placed, tuple(world.asked)
    return Result(vector, rules, failure, line, placed, told, world.checked, moments, topology, asked)


def _live(vector: Vector, world: World) -> None:
    steps = iter(vector.steps)
    if vector.configuration:
        world.start(vector.configuration, vector.line)
    else:
        world.take(next(steps))
    if vector.pools:
        world.expect_pools(vector.pools)
    for each in steps:
        if each.only in ("", world.rules):
            world.take(each)
