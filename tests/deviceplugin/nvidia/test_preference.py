"""Which of NVIDIA's cards are preferred."""

import pytest

from criproxy.deviceplugin.nvidia.options import SharedResource
from criproxy.deviceplugin.nvidia.preference import UnknownGpu, pair_score, pair_scores, preferred
from criproxy.deviceplugin.nvidia.resources import offers
from criproxy.devices.classes.cards import Card, Distance, NvLinks, Peers
from criproxy.devices.classes.offers import Offered
from criproxy.devices.plugin.preference import NotEnoughOffered
from tests.deviceplugin.nvidia.machines import a100, config, t4

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


def test_equal_cards() -> None:
    """Cards that are linked alike are preferred on one NUMA node, on that with more free CPUs."""
    assert preferred(FOUR, *asked()) == ("GPU-0", "GPU-2")
    assert preferred(FOUR, *asked(), free_cpu_milli={0: 1000, 1: 4000}) == ("GPU-1", "GPU-3")
    assert preferred(FOUR, *asked(size=1, available=("GPU-3", "GPU-2", "GPU-1"))) == ("GPU-1",)


def test_what_cannot_be_answered() -> None:
    """Required cards that are not free get an empty answer; unknown ones are an error in NVIDIA's words."""
    assert preferred(FOUR, *asked("GPU-0", available=ALL[1:])) == ()
    assert preferred(FOUR, *asked(size=5)) == ()
    for request, which in ((asked(available=("GPU-0", "GPU-9")), "available"), (asked("GPU-9"), "required")):
        with pytest.raises(UnknownGpu) as error:
            preferred(FOUR, *request)
        assert str(error.value) == f"unable to retrieve list of {which} devices: no device with uuid: GPU-9"


def test_replicas_and_mig_devices_are_counted() -> None:
    """Links do not matter where cards are shared, in parts, or all behind one node."""
    shared = offers([t4(0), t4(1)], config(SharedResource(name="nvidia.com/gpu", replicas=2)))["nvidia.com/gpu"]
    parts = offers([a100(0, "1g.5gb", "1g.5gb")], config(strategy="single"))["nvidia.com/gpu"]
    windows = {"all": Offered(id="all", index="all", paths=("/dev/dxg",))}

    assert preferred(shared, *asked(available=tuple(shared))) == ("GPU-0::0", "GPU-1::0")
    assert preferred(shared, *asked(available=tuple(shared)), spread="packed") == ("GPU-0::0", "GPU-0::1")
    assert preferred(parts, *asked(available=tuple(parts), size=1)) == ("MIG-0-0",)
    with pytest.raises(NotEnoughOffered):
        preferred(windows, *asked(available=("all",)))


@pytest.mark.parametrize(
    ("distance", "nvlinks", "expected"),
    [
        pytest.param(Distance.SYS, 0, 10, id="across-cpus"),
        pytest.param(Distance.NODE, 0, 20, id="one-numa-node"),
        pytest.param(Distance.PHB, 0, 30, id="a-host-bridge"),
        pytest.param(Distance.PXB, 0, 40, id="switches"),
        pytest.param(Distance.PIX, 0, 50, id="a-switch"),
        pytest.param(None, 0, 60, id="a-board"),
        pytest.param(Distance.SYS, 2, 210, id="links"),
        pytest.param(Distance.SYS, 30, 1810, id="more-links-than-nvidia-counts"),
    ],
)
def test_scores(distance: Distance | None, nvlinks: int, expected: int) -> None:
    """Every link counts more than any nearness on the PCI bus."""
    assert pair_score(distance, nvlinks) == expected


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
