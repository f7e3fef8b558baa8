"""The cards that NVIDIA's plugin prefers, and our choice among those that it rates equally."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from criproxy.deviceplugin.nvidia.mps import is_mig
from criproxy.deviceplugin.nvidia.nodes import WSL_NODE
from criproxy.devices.classes.cards import Card
from criproxy.devices.classes.links import NO_PEERS, Distance, Peers, links
from criproxy.devices.classes.offers import Offered, is_replica
from criproxy.devices.plugin.preference import Spread, near, slots, together

POINTS = {Distance.SYS: 10, Distance.NODE: 20, Distance.PHB: 30, Distance.PXB: 40, Distance.PIX: 50}
"""Points of a pair of GPUs, by what connects them."""
POINTS_ON_ONE_BOARD = 60
POINTS_OF_A_LINK = 100
"""For each direct NVLink between the GPUs; links to switches do not count."""
MAX_LINKS = 18

PairScores = Mapping[frozenset[str], int]
"""By the UUIDs of two GPUs; missing pairs have only the machine in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The kubelet's request for one container."""

    available: tuple[str, ...]
    """In any order."""
    required: tuple[str, ...] = ()
    """The IDs that the container gets in any case."""
    size: int
    """Total number of IDs for the container."""


class UnknownGpu(ValueError):
    """A GPU that NVML does not report; the text is NVIDIA's."""


def pair_score(distance: Distance | None, nvlinks: int = 0) -> int:
    """Return how closely two GPUs are linked.

    Args:
        distance: What connects them; None if they are on one board.
        nvlinks: Number of direct NVLinks between them, without those through switches.
    """
    points = POINTS_ON_ONE_BOARD if distance is None else POINTS[distance]
    return points + POINTS_OF_A_LINK * min(nvlinks, MAX_LINKS)


def pair_scores(cards: Sequence[Card], peers: Mapping[str, Peers]) -> PairScores:
    """Return how closely each two of *cards* are linked; *peers* has, by ID, the links that the driver reports."""
    found = {}
    for link in links(cards, peers):
        one, other = cards[link.first], cards[link.second]
        forward = peers.get(one.id, NO_PEERS).nvlinks.to_cards.get(other.pci, 0)
        back = peers.get(other.id, NO_PEERS).nvlinks.to_cards.get(one.pci, 0)
        found[frozenset({one.id, other.id})] = pair_score(link.distance, forward or back)
    return found


def preferred(
    offered: Mapping[str, Offered],
    request: Request,
    *,
    spread: Spread = "distributed",
    scores: PairScores | None = None,
    free_cpu_milli: Mapping[int, int] | None = None,
) -> tuple[str, ...]:
    """Return the IDs of a resource that the kubelet should allocate to a container.

    Whole GPUs are chosen by their links; replicas and MIG devices by the number in use, according to *spread*.

    Args:
        offered: All IDs of the resource.
        request: The kubelet's request.
        spread: How replicas are distributed over cards.
        scores: How closely whole GPUs are linked.
        free_cpu_milli: Free CPU by NUMA node, as far as known.

    Raises:
        UnknownGpu: A requested GPU is unknown.
        NotEnoughOffered: There are too few IDs.
    """
    if any(map(is_replica, request.available)) or not all(map(_is_whole_gpu, offered.values())):
        return slots(offered, request.available, request.required, request.size, spread)
    _check(offered, request.available, "available")
    _check(offered, request.required, "required")
    free = set(request.available)
    cards = [each for each in offered.values() if each.id in free]
    if not free.issuperset(request.required):
        return ()
    pairs = [[_pair_score(one, other, scores or {}) for other in cards] for one in cards]
    required = [place for place, each in enumerate(cards) if each.id in request.required]
    rank = near([each.numa_node for each in cards], free_cpu_milli)
    return tuple(cards[place].id for place in together(pairs, request.size, required, rank))


def _is_whole_gpu(offered: Offered) -> bool:
    return not is_mig(offered) and offered.vgpu is None and WSL_NODE not in offered.paths


def _check(offered: Mapping[str, Offered], ids: Sequence[str], name: str) -> None:
    if unknown := next((each for each in ids if each not in offered), None):
        raise UnknownGpu(f"unable to retrieve list of {name} devices: no device with uuid: {unknown}")


def _pair_score(one: Offered, other: Offered, scores: PairScores) -> int:
    if one is other:
        return 0
    return scores.get(frozenset({one.id, other.id}), POINTS[Distance.SYS])
