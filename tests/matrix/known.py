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


KNOWN: Mapping[int, Defect] = {
    1: Defect(
        "with devices, containers of exempt namespaces and privileged ones are refused: a log line raises",
        "balloons 02 03 04 07 08 09 17 18 19 20 22 23 26 33 34 36 39 "
        "none 02 03 04 07 08 09 17 18 19 20 22 23 26 33 34 36 39 "
        "pools 02 03 04 07 08 09 17 18 19 20 22 23 26 33 34 36 39 "
        "static 02 03 04 07 08 09 17 18 19 20 22 23 26 33 34 36 39 "
        "topology-aware 02 03 04 07 08 09 17 18 19 20 22 23 26 33 34 36 39",
    ),
    2: Defect(
        "cpu.preserve leaves a container on CPUs that others own, and --check is silent",
        "balloons 07 11 23 34 pools 07 11 23 34 static 33 topology-aware 04 30 33",
    ),
    4: Defect(
        "who should own CPUs and came while criproxy could not place, or does not fit, shares, and --check is silent",
        "balloons 18 19 25 27 "
        "none 09 25 27 "
        "pools 18 19 25 27 "
        "static 02 03 08 25 26 27 "
        "topology-aware 02 03 08 18 25 26 27",
    ),
    14: Defect(
        "a resize of memory alone places a container anew that shares: it moves, or is refused for lack of CPU",
        "none 31 35 static 04 topology-aware 04 balloons 04 pools 04",
    ),
    15: Defect(
        "a container that is resized during a bypass keeps its old CPUs for good, and --check is silent",
        "static 24 26 topology-aware 24 26",
    ),
}


def known(identifier: str) -> str:
    """Why a case does not hold yet; empty where it should."""
    return "; ".join(f"defect {number}: {one.sentence}" for number, one in KNOWN.items() if one.has(identifier))
