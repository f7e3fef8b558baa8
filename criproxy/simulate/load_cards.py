"""The cards of a node under a load: where they are, and which of them a container gets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from criproxy.errors import UsageError
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology
from criproxy.simulate.load import Spec

Cards = Sequence[CpuSet]
"""For each card the NUMA nodes next to it; none where nobody knows."""


def cards_of(spec: Spec, topology: Topology, name: str) -> Cards:
    """The cards that *spec* puts into the machine *topology*.

    Raises:
        UsageError: pods ask for cards of which there are none, or cards are where there is no NUMA node.
    """
    cards = _placed(spec.cards, topology)
    if not cards and any(kind.cards for kind in spec.kinds):
        raise UsageError(
            f"pods of the load {name} ask for cards, and there are none: write cards: 8 in it, "
            "or give a --host-root that has accelerators"
        )
    if unknown := sorted({number for card in cards for number in card} - topology.node_by_id.keys()):
        raise UsageError(f"the load {name} has cards on NUMA node {unknown[0]}, which its machine does not have")
    return cards


def _placed(cards: int | Mapping[int, int], topology: Topology) -> Cards:
    if isinstance(cards, int):
        homes = [node.id for node in topology.nodes if node.cpus]
        return [frozenset({homes[place * len(homes) // cards]}) for place in range(cards if homes else 0)]
    return [frozenset({number}) for number, count in cards.items() for _ in range(count)]


@dataclass(slots=True)
class Deck:
    """Cards that are free, and who has the others."""

    free: list[CpuSet]
    _given: dict[str, list[CpuSet]] = field(default_factory=dict)

    def give(self, pod: str, count: int) -> list[CpuSet]:
        """So many cards for a container of *pod*: of as few places as possible, and of those with the most left.

        There are so many.
        """
        given: list[CpuSet] = []
        while len(given) < count:
            missing = count - len(given)
            counts = {place: self.free.count(place) for place in dict.fromkeys(self.free)}
            place = max(counts, key=lambda each: (min(counts[each], missing), counts[each]))
            for _ in range(min(missing, counts[place])):
                self.free.remove(place)
                given.append(place)
        self._given.setdefault(pod, []).extend(given)
        return given

    def take_back(self, pod: str) -> None:
        """*pod* has ended."""
        self.free += self._given.pop(pod, [])
