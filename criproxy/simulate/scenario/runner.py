"""Runs vectors, each by the rules that it applies to, and shows people and programs how they went."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from criproxy.model.cpuset import format_cpuset
from criproxy.model.machine.hardware import HugePages
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


def line(result: Result, id_width: int = 0) -> str:
    """Which case by which rules, how it went, the first thing that is not as expected, and who is where."""
    name = f"{result.vector.id:{id_width}}  {result.rules or '-':5}"
    if result.vector.unit:
        return f"{name}  unit    it is about a single function: for tests"
    status = f"FAILED  line {result.line}: {result.failure}" if result.failure else "ok    "
    return f"{name}  {status} | {placement(result.placement)}"


def reasons(result: Result) -> Iterable[str]:
    """What the policy said, a line for each sentence."""
    return (f"    line {told.line}: {reason}" for told in result.told for reason in told.reasons if reason)


def placement(placed: Mapping[str, Placed]) -> str:
    """Who is where, such as ``pod0c0 4! m1, pod0c1 0-3 m0``: CPUs, ! for its own, m for NUMA nodes of memory."""
    return ", ".join(f"{name} {_place(place)}" for name, place in placed.items()) or "nobody"


def summary(results: Iterable[Result]) -> str:
    """How many there were and how they went."""
    counts = {"ok": 0, "FAILED": 0, "unit": 0}
    for result in results:
        counts["unit" if result.vector.unit else "FAILED" if result.failure else "ok"] += 1
    return f"{counts['ok']} ok, {counts['FAILED']} FAILED" + (f", {counts['unit']} unit" if counts["unit"] else "")


def as_json(result: Result, *, verbose: bool = False) -> dict[str, Any]:
    """The same as plain data."""
    values: dict[str, Any] = {
        "id": result.vector.id,
        "title": result.vector.title,
        "rules": result.rules or None,
        "status": "unit" if result.vector.unit else "failed" if result.failure else "ok",
        "failure": {"line": result.line, "text": result.failure} if result.failure else None,
        "assertions_held": result.checked,
        "placement": {name: _place_as_json(place) for name, place in result.placement.items()},
    }
    if verbose:
        values["reasons"] = [{"line": told.line, "text": reason} for told in result.told for reason in told.reasons]
    return values


def _place(place: Placed) -> str:
    own = (
        "!" if place.exclusive == place.cpus else f" (own {format_cpuset(place.exclusive)})" if place.exclusive else ""
    )
    return f"{format_cpuset(place.cpus)}{own} m{format_cpuset(place.mems)}"


def _place_as_json(place: Placed) -> dict[str, str]:
    return {
        "cpus": format_cpuset(place.cpus),
        "own": format_cpuset(place.exclusive),
        "mems": format_cpuset(place.mems),
        "pool": place.pool,
    }
