"""Which resources NVIDIA's cards are offered as, and under which ids."""

from dataclasses import replace

import pytest

from criproxy.deviceplugin.nvidia.resources import ResourceError, empty_parents, offers
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
