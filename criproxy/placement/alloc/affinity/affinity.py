"""Affinity: which containers want to be near each other or far apart, and what that makes of each pool.

The rules and the notation are those of CRI-RM and nri-plugins. A container's affinities say how much weight it gives to
others; a pool's score is the weight of those in it, around it and within it, a quarter less with each step in the tree.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from criproxy.model.text.bounded import bounded_text
from criproxy.placement.alloc.affinity import expressions
from criproxy.placement.alloc.affinity.expressions import ALWAYS, Attribute, Expression, compared_value, to_expression

MAX_WEIGHT = 1000
MAX_AFFINITIES = 32
"""Of one container: each is compared with every other container."""
MAX_KEYS = 16
"""Different ones in them, those of a joint one counted one by one: each is read of every other container."""
MAX_VALUES = 256
"""In them."""
MAX_PATTERNS = 8
"""In them."""
MAX_CHARS_OF_PATTERNS = 256
"""Of these together."""
_MAX_NAME_CHARS = 63
SAME_POD = Expression("pod/uid", "Exists")
"""Stands for the default scope: containers of the same pod, whatever its name."""


@dataclass(frozen=True, slots=True)
class Affinity:
    """How much a container wants to be near others; a negative weight is how much it wants to be away from them."""

    match: Expression
    weight: int = 1
    scope: Expression = SAME_POD
    """The containers that count at all."""

    def holds(self, value_of: Attribute, *, same_pod: bool) -> bool:
        """Whether it is about one other container, whose values *value_of* reads like `compared_value`."""
        inside = same_pod if self.scope is SAME_POD else self.scope.holds(value_of)
        return inside and self.match.holds(value_of)


def parse_affinities(
    document: object, container: str, *, anti: bool, besides: Sequence[Affinity] = ()
) -> list[Affinity]:
    """The affinities of *container* that an annotation ``affinity`` or ``anti-affinity`` of its pod says.

    Args:
        document: the value of the annotation as plain data: container → names of others, which is mutual, or → a list
            of ``{match, scope, weight}``.
        container: its name in the pod.
        anti: whether it is ``anti-affinity``: weights count the other way.
        besides: those that the other annotation says, which the limits count as well.

    Raises:
        ValueError: what is wrong with it, in one sentence.
    """
    if not isinstance(document, Mapping):
        raise ValueError("it must be a map of container names to lists")  # noqa: TRY004 (users' data)
    found: list[Affinity] = []
    for key, entries in document.items():
        name = str(key)
        if not isinstance(entries, list):
            reason = "must be a list of container names or of {match, scope, weight}"
            raise ValueError(f"{bounded_text(name, _MAX_NAME_CHARS)}: {reason}")  # noqa: TRY004
        _check_count(name, len(entries), "entries", MAX_AFFINITIES)
        for entry in entries:
            if isinstance(entry, Mapping):
                affinity = _full(name, entry, anti=anti)
                found += [affinity] if name == container else []
            else:
                found += _mutual(name, str(entry), container, anti=anti)
    _check(container, [*besides, *found])
    return found


def _check(container: str, affinities: Sequence[Affinity]) -> None:
    """Raise ValueError if a container has so many that other containers would wait for it."""
    both = [each for affinity in affinities for each in (affinity.match, affinity.scope)]
    keys = {each.key for each in both if each is not SAME_POD and each.operator != ALWAYS.operator}
    patterns = [pattern for each in both for pattern in each.patterns]
    _check_count(container, len(affinities), "affinities", MAX_AFFINITIES)
    _check_count(container, sum(len(expressions.keys_of(key)) for key in keys), "keys", MAX_KEYS)
    _check_count(container, sum(len(each.values) for each in both), "values", MAX_VALUES)
    _check_count(container, len(patterns), "patterns", MAX_PATTERNS)
    _check_count(container, sum(map(len, patterns)), "characters in its patterns", MAX_CHARS_OF_PATTERNS)


def _check_count(name: str, count: int, what: str, most: int) -> None:
    if count > most:
        raise ValueError(f"{bounded_text(name, _MAX_NAME_CHARS)}: it has {count} {what}, and {most} is the most")


def _mutual(name: str, other: str, container: str, *, anti: bool) -> list[Affinity]:
    partner = other if name == container else name if other == container else None
    return [Affinity(Expression("name", "Equals", (partner,)), -1 if anti else 1)] if partner else []


def _full(container: str, entry: Mapping[object, object], *, anti: bool) -> Affinity:
    name = bounded_text(container, _MAX_NAME_CHARS)
    if unknown := sorted(str(key) for key in entry.keys() - {"match", "scope", "weight"}):
        raise ValueError(f"{name}: an affinity has match, scope and weight, and no {expressions.shown(unknown[0])}")
    weight = entry.get("weight", 1)
    if type(weight) is not int or abs(weight) > MAX_WEIGHT:
        raise ValueError(
            f"{name}: the weight is a whole number from -{MAX_WEIGHT} to {MAX_WEIGHT}, not {expressions.shown(weight)}"
        )
    if "match" not in entry:
        raise ValueError(f"{name}: an affinity needs a match")
    try:
        match = to_expression(entry["match"])
        scope = to_expression(entry["scope"]) if entry.get("scope") else SAME_POD
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return Affinity(match, -weight if anti else weight, scope)


def keys_of(affinities: Iterable[Affinity]) -> set[str]:
    """What of others, beside whether they are of the same pod, they look at."""
    both = (each for affinity in affinities for each in (affinity.scope, affinity.match) if each is not SAME_POD)
    return {key for each in both if each.operator != ALWAYS.operator for key in expressions.keys_of(each.key)}


def weight_of(affinities: Iterable[Affinity], other: Attribute, *, same_pod: bool) -> int:
    """The weight that a container with these affinities gives to one other container."""
    value_of = cache(partial(compared_value, attribute=other))
    return sum([affinity.weight for affinity in affinities if affinity.holds(value_of, same_pod=same_pod)])


def pool_scores(paths: Sequence[tuple[int, ...]], weights: Mapping[int, int]) -> list[int]:
    """The score of each pool: sum of ``weight · 0.75^distance`` over the pools that are it, above it or below it.

    Args:
        paths: for each pool its own index, that of the pool around it, and so on up to the root.
        weights: of the containers in a pool, by its index.

    Returns:
        By index, times ``4^depth`` of the tree, so that it is exact.
    """
    depth = max(map(len, paths), default=0)
    scores = [0] * len(paths)
    for pool, weight in weights.items():
        for index, path in enumerate(paths):
            if pool in path or index in paths[pool]:
                distance = abs(len(path) - len(paths[pool]))
                scores[index] += weight * 3**distance * 4 ** (depth - distance)
    return scores
