"""The commands of the socket, as values: what the daemon sends, and what it gets.

``apply`` has ``generation`` and either ``desired``, everything as `Desired`, or changes: ``after``, the generation to
which they apply, and any of ``containers`` (those that are new or other), ``gone`` (ids) and ``layout`` (a `Desired`
without containers). The values are as `model.text.plain` writes them; the answer is a `ControlsAnswer`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from criproxy.errors import UsageError
from criproxy.model.controls import NOTHING_DESIRED, ContainerControls, Desired
from criproxy.model.text.plain import from_plain

LONGEST_REQUEST_BYTES = 8 << 20
"""A map with 10,000 containers has half of it."""
MOST_CONTAINERS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What ``apply`` changes."""

    generation: int
    after: int
    containers: Mapping[str, ContainerControls]
    gone: tuple[str, ...] = ()
    layout: Desired | None = None

    def applied_to(self, desired: Desired) -> Desired:
        """Return what is desired with these changes."""
        gone = {*self.gone}
        kept = {key: controls for key, controls in desired.containers.items() if key not in gone}
        return replace(self.layout or desired, containers={**kept, **self.containers})


def parse_apply(arguments: Mapping[str, Any]) -> tuple[int, Desired | Changes]:
    """Return the generation, and everything or changes.

    Raises:
        UsageError: the arguments are invalid; the text names the part.
    """
    known = {"generation", "desired", "after", "containers", "gone", "layout"}
    if strange := arguments.keys() - known:
        raise UsageError(f"apply has no argument {min(strange)!r:.60}; it has {', '.join(sorted(known))}")
    try:
        generation = from_plain(_Generation, arguments).generation
        if "desired" in arguments:
            return generation, _checked(from_plain(Desired, arguments["desired"]))
        changes = from_plain(Changes, {"containers": {}, **arguments})
        _checked(replace(changes.layout or NOTHING_DESIRED, containers=changes.containers))
    except ValueError as error:
        raise UsageError(f"apply: {error}") from error
    return generation, changes


@dataclass(frozen=True, slots=True)
class _Generation:
    generation: int


def _checked(desired: Desired) -> Desired:
    """Return *desired*; raise ValueError for what would lead to files elsewhere."""
    if len(desired.containers) > MOST_CONTAINERS:
        raise ValueError(f"{len(desired.containers)} containers are too many; at most {MOST_CONTAINERS} are possible")
    for key, controls in desired.containers.items():
        words = controls.cgroup.strip("/").split("/")
        if not key or "/" in key or "\0" in controls.cgroup or {"", ".", ".."} & {*words}:
            raise ValueError(f"containers.{key!r:.80}: {controls.cgroup!r:.120} is not the path of a cgroup")
    return desired
