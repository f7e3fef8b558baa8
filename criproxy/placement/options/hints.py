"""The topology hints of a container's cards, unless its pod turns them off."""

from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.placement.options.annotations import Wishes

_NONE = ({"false"}, {"none"}, {"mounts"})
"""Values of ``topologyhints`` that leave no hint of a device."""
_WORDS = {"true", "false", "none", "all", "mounts", "devices", "pod-resources"}


def hints_of(wishes: Wishes) -> tuple[tuple[CpuSet, ...], bool]:
    """For each device the NUMA nodes next to it, and whether the container must be close to all of them.

    Raises:
        BadAnnotation: an annotation cannot be understood.
    """
    words = wishes.read("topologyhints", _words)
    strict = bool(wishes.boolean("strict.topologyhints"))
    hints = wishes.container.hints
    return ((), False) if words in _NONE else (hints, strict and bool(hints))


def nodes_of(hints: tuple[CpuSet, ...]) -> CpuSet:
    """All NUMA nodes next to some device."""
    return NO_CPUS.union(*hints)


def near_words(hints: tuple[CpuSet, ...]) -> str:
    """``NUMA node 0 and NUMA node 2``."""
    return " and ".join(dict.fromkeys(f"NUMA node {format_cpuset(hint)}" for hint in hints))


def _words(text: str) -> set[str]:
    words = {word.strip().lower() for word in text.split(",") if word.strip()}
    if unknown := sorted(words - _WORDS):
        raise ValueError(f"{unknown[0]!r} must be true, false, or some of {', '.join(sorted(_WORDS))}")
    return words
