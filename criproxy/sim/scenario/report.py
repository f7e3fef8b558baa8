"""Results of scenarios as lines for people."""

from collections.abc import Mapping

from criproxy.model.cpuset import format_cpuset
from criproxy.sim.scenario.runner import Result
from criproxy.sim.scenario.seen import Placed


def line(result: Result) -> str:
    """One line: which case, how it went, the first thing that is not as expected, and who is where."""
    status = f"FAILED at line {result.line}: {result.failure}" if result.failure else "ok"
    return f"{result.vector.id} {result.rules} {status} | {placement(result.placement)}"


def placement(placed: Mapping[str, Placed]) -> str:
    """Who is where, such as ``pod0c0 4! m1, pod0c1 0-3 m0``; ! marks what is its own, m memory."""
    return ", ".join(f"{name} {_place(place)}" for name, place in placed.items()) or "nobody"


def _place(place: Placed) -> str:
    own = (
        "!" if place.exclusive == place.cpus else f" (own {format_cpuset(place.exclusive)})" if place.exclusive else ""
    )
    return f"{format_cpuset(place.cpus)}{own} m{format_cpuset(place.mems)}"
