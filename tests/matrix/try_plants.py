"""Defects of tries to plant in criproxy, each with the words of the cases that find it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from criproxy.daemon import start
from criproxy.node.configuration import try_out
from tests.matrix.trying import ALL, TryCase

FEW = 4
"""So many cases are tried for a plant at the most."""


@dataclass(frozen=True, slots=True)
class TryPlant:
    """A defect, and how it is caught."""

    bring_back: Callable[[pytest.MonkeyPatch], None]
    words: tuple[str, ...]
    """Of the cases with all of these, one of the first few finds it."""
    sentence: str
    """What is found: a regular expression."""

    def cases(self) -> list[TryCase]:
        """The first cases with all of its words."""
        said = {case: {case.policy, f"try {case.tried}", case.apply, case.meets, case.end} for case in ALL}
        return [case for case in ALL if said[case].issuperset(self.words)][:FEW]


def places_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Nobody knows where the containers were before the try: they stay where it has put them."""
    patch.setattr(try_out, "places_of", lambda node: {})


def a_start_forgets_tries(patch: pytest.MonkeyPatch) -> None:
    """Each start uses the policy file."""
    patch.setattr(start, "read_tried", lambda state_dir: None)


PLANTS: Mapping[str, TryPlant] = {
    "places-are-forgotten": TryPlant(
        places_are_forgotten,
        ("static", "try none", "its time is over"),
        "after the try: first was on",
    ),
    "a-start-forgets-tries": TryPlant(
        a_start_forgets_tries, ("it is kept",), "is not what was kept|no configuration is being tried"
    ),
}
