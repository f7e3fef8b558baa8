"""Cases of the matrix that do not hold yet: by the number of the defect, a sentence and who fails by it.

A defect that is mended loses its row here: a case that holds although it is listed fails. ``python -m tests.matrix``
tells at once which cases hold and which do not.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Defect:
    """A mistake of criproxy that the matrix finds."""

    sentence: str
    cases: str
    """Policies with the numbers of their cases, such as ``static 02 07``."""

    def has(self, identifier: str) -> bool:
        """Whether it makes the case *identifier*, such as ``static-02``, fail."""
        return identifier in self.ids

    @property
    def ids(self) -> set[str]:
        """The identifiers of its cases."""
        found, policy = set[str](), ""
        for word in self.cases.split():
            policy = policy if word.isdigit() else word
            found |= {f"{policy}-{word}"} if word.isdigit() else set()
        return found


KNOWN: Mapping[int, Defect] = {}


def known(identifier: str) -> str:
    """Why a case does not hold yet; empty where it should."""
    return "; ".join(f"defect {number}: {one.sentence}" for number, one in KNOWN.items() if one.has(identifier))
