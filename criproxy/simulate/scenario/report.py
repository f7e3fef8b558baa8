"""Results of scenarios for people and programs."""

from collections.abc import Iterable, Mapping
from typing import Any

from criproxy.model.cpuset import format_cpuset
from criproxy.simulate.scenario.runner import Result
from criproxy.simulate.scenario.seen import Placed


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
