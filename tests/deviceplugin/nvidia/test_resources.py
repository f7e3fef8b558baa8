"""Which resources NVIDIA's cards are offered as, under which ids, and which of them are preferred."""

from dataclasses import replace

import pytest

from criproxy.deviceplugin.nvidia.options import SharedResource
from criproxy.deviceplugin.nvidia.preference import pair_score, pair_scores, preferred
from criproxy.deviceplugin.nvidia.resources import ResourceError, empty_parents, offers
from criproxy.devices.classes.cards import Card, Distance, NvLinks, Peers
from criproxy.devices.classes.offers import Offered
from criproxy.devices.plugin.preference import NotEnoughOffered
from tests.deviceplugin.nvidia.machines import a100, config, t4


def test_instances_of_one_profile_and_different_memory_differ() -> None:
    """The strategy single compares what NVML says: the size in a name is relative to the GPU's."""
    first, second = a100(0, "1g.5gb"), a100(1, "1g.5gb")
    other = replace(second, mig=(replace(second.mig[0], memory_mib=5000),))

    assert list(offers([first, second], config(strategy="single"))["nvidia.com/gpu"]) == ["MIG-0-0", "MIG-1-0"]
    with pytest.raises(ResourceError, match="more than one MIG device type present on node"):
        offers([first, other], config(strategy="single"))


def test_empty_parents() -> None:
    """GPUs with MIG in which a program finds nothing to use are named."""
    gpus = [a100(0, "1g.5gb"), a100(1), t4(2)]

    assert empty_parents(gpus) == [gpus[1]]


FOUR = offers([t4(number, numa_node=number % 2) for number in range(4)], config())["nvidia.com/gpu"]
ALL = tuple(FOUR)
BRIDGED = {frozenset({"GPU-0", "GPU-3"}): pair_score(Distance.SYS, 4), frozenset({"GPU-1", "GPU-2"}): 410}


def asked(
    *required: str, size: int = 2, available: tuple[str, ...] = ALL
) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Ask for a number of cards."""
    return available, required, size


def test_links_decide_before_numa_nodes() -> None:
    """Cards with a bridge between them are preferred to those on one NUMA node."""
    assert preferred(FOUR, *asked(), scores=BRIDGED) == ("GPU-0", "GPU-3")
    assert preferred(FOUR, *asked(), scores=BRIDGED, free_cpu_milli={0: 4000, 1: 4000}) == ("GPU-0", "GPU-3")
    assert preferred(FOUR, *asked("GPU-2"), scores=BRIDGED) == ("GPU-1", "GPU-2")
    assert pair_score(Distance.SYS, 30) == 1810, "NVIDIA counts no more than 18 links"


def test_equal_cards() -> None:
    """Cards that are linked alike are preferred on one NUMA node, on that with more free CPUs."""
    assert preferred(FOUR, *asked()) == ("GPU-0", "GPU-2")
    assert preferred(FOUR, *asked(), free_cpu_milli={0: 1000, 1: 4000}) == ("GPU-1", "GPU-3")
    assert preferred(FOUR, *asked(size=1, available=("GPU-3", "GPU-2", "GPU-1"))) == ("GPU-1",)


def test_links_to_switches_do_not_count() -> None:
    """Only links whose other end is the other card count, whichever of the two reports them."""
    cards = [Card(number, (), f"GPU-{number}", f"0000:0{number}:00.0", numa_node=0) for number in range(3)]
    told = {
        "GPU-0": Peers(nvlinks=NvLinks({"0000:01:00.0": 2}, to_switches=4)),
        "GPU-2": Peers({"GPU-1": Distance.PIX}, nvlinks=NvLinks({}, to_switches=4)),
        "GPU-1": Peers({"GPU-2": Distance.PIX}),
    }

    assert pair_scores(cards, told) == {
        frozenset({"GPU-0", "GPU-1"}): 220,
        frozenset({"GPU-0", "GPU-2"}): 20,
        frozenset({"GPU-1", "GPU-2"}): 50,
    }


def test_shared_cards_and_parts_are_counted() -> None:
    """Links do not matter there, nor where all cards are behind one node."""
    shared = offers([t4(0), t4(1)], config(SharedResource(name="nvidia.com/gpu", replicas=2)))["nvidia.com/gpu"]
    windows = {"all": Offered(id="all", index="all", paths=("/dev/dxg",))}

    assert preferred(shared, *asked(available=tuple(shared)), spread="packed") == ("GPU-0::0", "GPU-0::1")
    with pytest.raises(NotEnoughOffered):
        preferred(windows, *asked(available=("all",)))
