"""Reasons of decisions as data, so that the container of a sentence need not be parsed from the sentence."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a decision."""

    key: str | None
    """The key of the container that it is about; None: the node, or the decision as a whole."""
    text: str
    """One sentence, for people."""


class AboutMemory(str):
    """The text of a reason about memory, to be replaced if memory stays where it was."""

    __slots__ = ()
