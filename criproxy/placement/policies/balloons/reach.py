"""Balloon types that nothing can reach, and what their expressions and groups ask for that no container has."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from criproxy.placement.alloc.affinity.expressions import keys_of
from criproxy.placement.options.attributes import KEYS, is_key
from criproxy.placement.options.policy_options import Misfit, Path, may_use
from criproxy.placement.policies.balloons.balloon_choice import keys_in
from criproxy.placement.policies.balloons.fields import (
    ANNOTATION,
    DEFAULT,
    RESERVED,
    SYSTEM_NAMESPACE,
    BalloonsFields,
    BalloonType,
)

EVERYTHING = "*"

Taken = list[tuple[str, str]]
"""Patterns of namespaces, each with the type that takes them."""


def unreachable(options: BalloonsFields) -> Iterator[Misfit]:
    """A sentence for each type into which no container can come as its author means it, and for each unknown key."""
    types = options.balloon_types
    parts = {part.balloon_type for kind in types for part in kind.components}
    named = may_use(options, ANNOTATION)
    taken: Taken = []
    if RESERVED not in {kind.name for kind in types}:
        taken += _taken_by_reserved(options)
    for index, kind in enumerate(types):
        path = ("balloonTypes", index)
        yield from _unknown_keys(path, kind)
        if kind.name not in {*parts, RESERVED, DEFAULT}:
            yield from _unreached(path, kind, taken, named=named)
        taken += [(pattern, kind.name) for pattern in kind.namespaces]
        taken += _taken_by_reserved(options) if kind.name == RESERVED else []
        if any(expression.operator == "AlwaysTrue" for expression in kind.match_expressions):
            taken.append((EVERYTHING, kind.name))
    for place, expression in enumerate(options.preserve.match_expressions):
        yield from _unknown(("preserve", "matchExpressions", place), keys_of(expression.key), expression.operator)


def _taken_by_reserved(options: BalloonsFields) -> Taken:
    return [(pattern, RESERVED) for pattern in (SYSTEM_NAMESPACE, *options.reserved_pool_namespaces)]


def _unreached(path: Path, kind: BalloonType, taken: Taken, *, named: bool) -> Iterator[Misfit]:
    """Whether earlier types take every container of this one, or it has no condition and no pod may name it."""
    if not (kind.namespaces or kind.match_expressions):
        if not named:
            text = "no container can get this type: give namespaces or matchExpressions, or permit"
            yield Misfit((*path, "name"), f"{text} {ANNOTATION} in annotations.allow")
        return
    first = [_first(pattern, taken) for pattern in kind.namespaces]
    all_taken_by = _first(EVERYTHING, taken)
    if not all(first) or (kind.match_expressions and not all_taken_by):
        return
    by = next(filter(None, first), all_taken_by)
    what = ", ".join(kind.namespaces) or "the containers"
    option = "namespaces" if kind.namespaces else "matchExpressions"
    yield Misfit((*path, option), f"has no effect: {by} comes first and takes all of {what}; put {kind.name} before it")


def _first(pattern: str, taken: Taken) -> str:
    """The type that takes all namespaces of *pattern*; empty where none does."""
    return next((name for earlier, name in taken if _covers(earlier, pattern)), "")


def _covers(earlier: str, pattern: str) -> bool:
    """Whether *earlier* stands for every namespace that *pattern* does."""
    if "*" in pattern and "?" in earlier:  # what is any text is not any character
        return earlier == pattern
    return fnmatchcase(pattern, earlier)


def _unknown_keys(path: Path, kind: BalloonType) -> Iterator[Misfit]:
    for place, expression in enumerate(kind.match_expressions):
        yield from _unknown((*path, "matchExpressions", place), keys_of(expression.key), expression.operator)
    for key in keys_in(kind.group_by):
        yield from _unknown((*path, "groupBy"), keys_of(key))


def _unknown(path: Path, keys: Sequence[str], operator: str = "") -> Iterator[Misfit]:
    for key in keys if operator != "AlwaysTrue" else ():
        if not is_key(key):
            yield Misfit(path, f"no container has the key {key!r}; keys are: {KEYS}")
