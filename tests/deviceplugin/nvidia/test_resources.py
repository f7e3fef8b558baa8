"""Which resources NVIDIA's cards are offered as, and under which ids."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.options import SharedResource
from criproxy.deviceplugin.nvidia.resources import ResourceError, empty_parents, offers
from criproxy.devices.classes.offers import card_of
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


@given(st.lists(st.sampled_from(["t4", "a100", "mig"]), max_size=6), st.integers(2, 5), st.booleans())
def test_capacity(kinds: list[str], replicas: int, rename: bool) -> None:
    """Every card is offered as often as the file says, and no id is in two resources."""
    gpus = [
        t4(index) if kind == "t4" else a100(index, "1g.5gb") if kind == "mig" else a100(index, on=False)
        for index, kind in enumerate(kinds)
    ]
    found = offers(
        gpus, config(SharedResource(name="nvidia.com/gpu", replicas=replicas), strategy="mixed", rename=rename)
    )
    everything = [each for offered in found.values() for each in offered]

    assert len(everything) == len(set(everything))
    assert sum(each.replicas == replicas for offered in found.values() for each in offered.values()) == replicas * len(
        [kind for kind in kinds if kind != "mig"]
    )
    assert {card_of(each) for each in everything} == {
        f"MIG-{index}-0" if kind == "mig" else f"GPU-{index}" for index, kind in enumerate(kinds)
    }
