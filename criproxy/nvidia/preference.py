"""Which cards NVIDIA's plugin would prefer, and among those that it likes equally, which we do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from criproxy.devices.cards import Card
from criproxy.devices.links import NO_PEERS, Distance, Peers, links
from criproxy.devices.offers import Offered, is_replica
from criproxy.devices.preference import Spread, near, slots, together
from criproxy.nvidia.mps import is_mig
from criproxy.nvidia.nodes import WSL_NODE

POINTS = {Distance.SYS: 10, Distance.NODE: 20, Distance.PHB: 30, Distance.PXB: 40, Distance.PIX: 50}
"""Of two GPUs, by what lies between them."""
POINTS_ON_ONE_BOARD = 60
POINTS_OF_A_LINK = 100
"""Of each NVLink that leads from one GPU to the other; those to switches do not count."""
MAX_LINKS = 18

PairScores = Mapping[frozenset[str], int]
"""By the UUIDs of two GPUs; those that are missing have nothing but the machine in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the kubelet asks for one container."""

    available: tuple[str, ...]
    """In any order."""
    required: tuple[str, ...] = ()
    """Those that the container has anyway."""
    size: int
    """How many it gets in all."""


class UnknownGpu(ValueError):
    """A GPU that NVML does not report; the text is NVIDIA's."""


def pair_score(distance: Distance | None, nvlinks: int = 0) -> int:
    """How well two GPUs belong together.

    Args:
        distance: what lies between them; None: they are on one board.
        nvlinks: those that lead from one to the other, and not by a switch.
    """
    points = POINTS_ON_ONE_BOARD if distance is None else POINTS[distance]
    return points + POINTS_OF_A_LINK * min(nvlinks, MAX_LINKS)


def pair_scores(cards: Sequence[Card], told: Mapping[str, Peers]) -> PairScores:
    """How well each two of *cards* belong together; *told* has by their ids what the driver says."""
    found = {}
    for link in links(cards, told):
        one, other = cards[link.first], cards[link.second]
        straight = told.get(one.id, NO_PEERS).nvlinks.to_cards.get(other.pci, 0)
        back = told.get(other.id, NO_PEERS).nvlinks.to_cards.get(one.pci, 0)
        found[frozenset({one.id, other.id})] = pair_score(link.distance, straight or back)
    return found


def preferred(
    offered: Mapping[str, Offered],
    request: Request,
    *,
    spread: Spread = "distributed",
    scores: PairScores | None = None,
    free_cpu_milli: Mapping[int, int] | None = None,
) -> tuple[str, ...]:
    """Which ids of a resource the kubelet had best allocate to a container.

    Whole GPUs are chosen by their links; replicas and MIG devices by how many are in use, as *spread* says.

    Args:
        offered: all ids of the resource.
        request: what the kubelet asks.
        spread: of replicas over cards.
        scores: of whole GPUs.
        free_cpu_milli: by NUMA node, as far as that is known.

    Raises:
        UnknownGpu, NotEnoughOffered: the request cannot be answered.
    """
    if any(map(is_replica, request.available)) or not all(map(_is_whole_gpu, offered.values())):
        return slots(offered, request.available, request.required, request.size, spread)
    _check(offered, request.available, "available")
    _check(offered, request.required, "required")
    free = set(request.available)
    cards = [each for each in offered.values() if each.id in free]
    if not free.issuperset(request.required):
        return ()
    pairs = [[_of_pair(one, other, scores or {}) for other in cards] for one in cards]
    required = [place for place, each in enumerate(cards) if each.id in request.required]
    rank = near([each.numa_node for each in cards], free_cpu_milli)
    return tuple(cards[place].id for place in together(pairs, request.size, required, rank))


def _is_whole_gpu(offered: Offered) -> bool:
    return not is_mig(offered) and offered.vgpu is None and WSL_NODE not in offered.paths


def _check(offered: Mapping[str, Offered], ids: Sequence[str], name: str) -> None:
    if unknown := next((each for each in ids if each not in offered), None):
        raise UnknownGpu(f"unable to retrieve list of {name} devices: no device with uuid: {unknown}")


def _of_pair(one: Offered, other: Offered, scores: PairScores) -> int:
    if one is other:
        return 0
    return scores.get(frozenset({one.id, other.id}), POINTS[Distance.SYS])
