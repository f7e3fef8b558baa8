"""The balloons that were compared for a container, and what those without room lack."""

from collections.abc import Iterator

from criproxy.model.text.amounts import counted
from criproxy.placement.alloc.rank import Candidate, Criterion, Unit, ranked
from criproxy.placement.options.annotations import Wishes
from criproxy.placement.policies.balloons.balloon_choice import Filling, Way
from criproxy.placement.policies.balloons.balloon_cpus import Shape, shape_of
from criproxy.placement.policies.balloons.fields import ANNOTATION, DEFAULT
from criproxy.placement.policies.balloons.kinds import Kind
from criproxy.placement.policies.balloons.state import Balloon, asked_milli
from criproxy.placement.policies.candidates import Candidates, Row, compared

OF, STAYS = "balloons", "it is already there"


def why_kind(kind: Kind, wishes: Wishes) -> str:
    """Why a container goes into balloons of a type."""
    if wishes.text(ANNOTATION) is not None:
        return f"its pod names the balloon type {kind.name}"
    return f"{'no balloon type but' if kind.name == DEFAULT else 'balloon type'} {kind.name} matches it"


def stays_in(own: Balloon, note: str) -> Candidates:
    """A container in a balloon that can have the size that it needs: no other balloon is compared."""
    return Candidates(OF, (), (Row(own.name, note=STAYS),), own.name, note)


def balloons_compared(filling: Filling, note: str) -> Candidates:
    """The balloons of a type, and a new one: by the way in which each is found, and by room."""
    if filling.kind.refused:
        return Candidates(OF, note=f"{note}, whose maxCPUs is -1")
    found = {balloon.name: (balloon, lacks(filling, balloon)) for balloon in filling.all()}
    ways = list(filling.ways())
    new = filling.empty()
    if new and new.name not in found:
        found[new.name] = new, lacks(filling, new)
    lacking = [Row(name, lacks=text) for name, (_, text) in found.items() if text]
    lacking += [] if new else [Row(f"a new {filling.kind.name}", lacks=_lacks_new(filling))]
    fitting = {name: balloon for name, (balloon, text) in found.items() if not text}
    by_name = {name: way for name, each in fitting.items() if (way := _first_way(filling, ways, each, new))}
    lacking += [Row(name, lacks="closeness to its devices") for name in fitting if name not in by_name]
    order = ranked(_candidate(filling, fitting[name], *way) for name, way in by_name.items())
    return compared(OF, order, lacking, note=note, notes=[by_name[each.name][1].why for each in order])


def _first_way(filling: Filling, ways: list[Way], balloon: Balloon, new: Balloon | None) -> tuple[int, Way] | None:
    """The first of *ways* that finds a balloon, and its place; None where it must be elsewhere."""
    joined = filling.joined(balloon) or balloon
    found = ((place, way) for place, way in enumerate(ways) if balloon.name in _names(way, new))
    return next(((place, way) for place, way in found if filling.is_there(way, joined)), None)


def _names(way: Way, new: Balloon | None) -> Iterator[str]:
    if way.balloons is not None:
        yield from (balloon.name for balloon in way.balloons)
    elif new is not None:
        yield new.name


def _candidate(filling: Filling, balloon: Balloon, place: int, way: Way) -> Candidate:
    room, few, instance = filling.order(balloon, inflated=way.inflated)
    criteria = (
        Criterion("an earlier rule finds it", place, Unit.FEWER),
        Criterion("it has more room", room, Unit.MORE_MILLI),
        Criterion("it has fewer containers", few, Unit.FEWER),
    )
    return Candidate(instance, balloon.name, criteria)


def lacks(filling: Filling, balloon: Balloon) -> str:
    """What a balloon has not that the container would need; empty where it has room."""
    if filling.kind.fixed:
        return "" if balloon.home else "CPUs"
    milli = balloon.milli + asked_milli(filling.container)
    sizes = balloon.shape.sizes(milli)
    missing = 0 if sizes is None else filling.missing_cpus(balloon, sizes)
    if filling.joined(balloon) is not None:
        return ""
    if sizes is None:
        return _over(balloon.shape, milli)
    return counted(missing, "CPU") if missing > 0 else "the NUMA nodes of its memory"


def _lacks_new(filling: Filling) -> str:
    """Why there can be no new balloon."""
    if filling.is_full:
        return f"a place: maxBalloons allows no more than {filling.kind.type.max_balloons}"
    milli = max(asked_milli(filling.container), 1)
    shape = shape_of(filling.kind, filling.state.counts() if filling.kind.chooses else {})
    sizes = shape.sizes(milli)
    return _over(shape, milli) if sizes is None else counted(sum(sizes) - len(filling.state.free), "CPU")


def _over(shape: Shape, milli: int) -> str:
    """What is too much for the largest balloon; a composite one may be too large in one of its parts only."""
    limit = shape.limit or 0
    over = milli - 1000 * limit
    return f"{over}m: its type allows {limit} CPUs" if over > 0 else "CPUs that its parts may have"
