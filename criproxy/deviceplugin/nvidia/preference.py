"""The cards that NVIDIA's plugin prefers, and our choice among those that it rates equally."""

from collections.abc import Callable, Mapping, Sequence

from criproxy.deviceplugin.nvidia.gpus import WSL_NODE
from criproxy.devices.classes.cards import NO_PEERS, Card, Distance, Peers, links
from criproxy.devices.classes.offers import Offered, is_replica
from criproxy.devices.evidence.device_request import InvalidRequest
from criproxy.devices.plugin.preference import NotEnoughOffered, Spread, near, slots, together

POINTS = {Distance.SYS: 10, Distance.NODE: 20, Distance.PHB: 30, Distance.PXB: 40, Distance.PIX: 50}
"""Points of a pair of GPUs, by what connects them."""
POINTS_ON_ONE_BOARD = 60
POINTS_OF_A_LINK = 100
"""For each direct NVLink between the GPUs; links to switches do not count."""
MAX_LINKS = 18
MANY_CARDS = 128
"""With more IDs, links between cards do not count: replicas have none, and no machine has so many cards."""
FreeCpus = Callable[[], Mapping[int, int]]
"""Returns the free CPU of each NUMA node in thousandths of a CPU, as the daemon reports it; called in a thread."""

PairScores = Mapping[frozenset[str], int]
"""By the UUIDs of two GPUs; missing pairs have only the machine in common."""


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


def prefer(
    offered: Mapping[str, Offered],
    spread: Spread,
    scores: Callable[[], PairScores],
    free_cpus: FreeCpus,
    available: Sequence[str],
    required: Sequence[str],
    size: int,
) -> Sequence[str]:
    """Return the IDs to allocate; see `preferred`. *scores* and *free_cpus* are called in the thread that needs them.

    Raises:
        InvalidRequest: The request cannot be satisfied.
    """
    try:
        if len(offered) > MANY_CARDS:  # the number of pairs would be too large
            return slots(offered, available, required, size, spread)
        return preferred(offered, available, required, size, spread=spread, scores=scores(), free_cpu_milli=free_cpus())
    except (UnknownGpu, NotEnoughOffered) as error:
        raise InvalidRequest(f"error getting list of preferred allocation devices: {error}") from error


def preferred(
    offered: Mapping[str, Offered],
    available: Sequence[str],
    required: Sequence[str],
    size: int,
    *,
    spread: Spread = "distributed",
    scores: PairScores | None = None,
    free_cpu_milli: Mapping[int, int] | None = None,
) -> tuple[str, ...]:
    """Return the IDs of a resource that the kubelet should allocate to a container.

    Whole GPUs are chosen by their links; replicas and MIG devices by the number in use, according to *spread*.

    Args:
        offered: All IDs of the resource.
        available: The free ones, in any order.
        required: The IDs that the container gets in any case.
        size: Total number of IDs for the container.
        spread: How replicas are distributed over cards.
        scores: How closely whole GPUs are linked.
        free_cpu_milli: Free CPU by NUMA node, as far as known.

    Raises:
        UnknownGpu: A requested GPU is unknown.
        NotEnoughOffered: There are too few IDs.
    """
    if any(map(is_replica, available)) or not all(map(_is_whole_gpu, offered.values())):
        return slots(offered, available, required, size, spread)
    for name, ids in (("available", available), ("required", required)):
        if unknown := next((each for each in ids if each not in offered), None):
            raise UnknownGpu(f"unable to retrieve list of {name} devices: no device with uuid: {unknown}")
    free = set(available)
    cards = [each for each in offered.values() if each.id in free]
    if not free.issuperset(required):
        return ()
    known = scores or {}
    pairs = [
        [0 if one is other else known.get(frozenset({one.id, other.id}), POINTS[Distance.SYS]) for other in cards]
        for one in cards
    ]
    rank = near([each.numa_node for each in cards], free_cpu_milli)
    wanted = [place for place, each in enumerate(cards) if each.id in required]
    return tuple(cards[place].id for place in together(pairs, size, wanted, rank))


def _is_whole_gpu(offered: Offered) -> bool:
    return not offered.is_part and offered.vgpu is None and WSL_NODE not in offered.paths
