"""Everything that one frame of `criproxy top` shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from criproxy.api.views.top.cards import CardRow
from criproxy.api.views.top.events import Event
from criproxy.api.views.top.machine import Block, Owners
from criproxy.api.views.top.rates import Rates
from criproxy.api.views.top.snapshot import Row, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The node as it is known at one moment."""

    host: str = ""
    at_s: float = 0.0
    """The time of the scene, in seconds since the epoch: a screen that is frozen keeps it."""
    clock: str = ""
    """The time of day."""
    told: Snapshot | None = None
    """None: nobody has answered yet."""
    problem: str = ""
    """Why the daemon's answer is old, or missing; empty if it is not."""
    rates: Rates = field(default_factory=Rates)
    blocks: Sequence[Block] = ()
    owners: Owners = field(default_factory=Owners)
    cards: Sequence[CardRow] = ()
    events: Sequence[Event] = ()
    """The oldest first."""


class Sort(Enum):
    """By what containers are sorted."""

    CPU = "CPU"
    MEMORY = "memory"
    NAME = "name"
    EXCLUSIVE = "exclusive CPUs"


def chosen(scene: Scene, text: str, sort: Sort, *, reverse: bool = False) -> list[Row]:
    """The containers that have not ended and whose name or CPUs have *text*, sorted; the highest first, or by name."""
    wanted = text.casefold()
    alive = [row for row in (scene.told.rows if scene.told else ()) if row.is_alive]
    rows = [row for row in alive if wanted in row.title.casefold()] if wanted else alive
    rows.sort(key=lambda row: row.title)
    if sort is not Sort.NAME:
        measure = _measure(scene, sort)
        rows.sort(key=lambda row: measure.get(row.key, -1), reverse=True)
    return rows[::-1] if reverse else rows


def _measure(scene: Scene, sort: Sort) -> Mapping[str, int]:
    if sort is Sort.CPU:
        return scene.rates.cpu_milli
    if sort is Sort.MEMORY:
        return scene.rates.memory_bytes
    return {row.key: len(row.exclusive) for row in (scene.told.rows if scene.told else ())}
