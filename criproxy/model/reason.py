"""Why something was decided, as data: which container a sentence is about is never read out of the sentence."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a decision."""

    key: str | None
    """The container that it is about, as in `Node.containers`; None: the node, or the decision as a whole."""
    text: str
    """One sentence, for people."""


class AboutMemory(str):
    """The text of a reason about where memory comes from, for whoever leaves memory where it was all the same."""

    __slots__ = ()
