"""A real NVIDIA GPU as the device plugin offers it."""

from collections.abc import Iterator

import pynvml
import pytest

from criproxy.deviceplugin.inventory import Inventory, Machine
from criproxy.deviceplugin.offering import Configuration
from criproxy.deviceplugin.resources import resources
from criproxy.devices.builtin import NVIDIA
from criproxy.devices.plan import NVIDIA_ALONE
from criproxy.nvidia.load import load

FIVE = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 5}]}}"


@pytest.fixture
def nvml() -> Iterator[None]:
    """NVML, for questions of the tests' own."""
    pynvml.nvmlInit()
    yield
    pynvml.nvmlShutdown()


async def look() -> Inventory:
    """This machine's cards, by a process that asks NVML."""
    return await Machine([NVIDIA]).look()


async def test_the_gpus_are_those_of_nvml(nvml: None) -> None:
    """In its order, with memory, compute capability and place; nothing hangs or is missing."""
    found = await look()

    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    assert [(gpu.uuid, gpu.name, gpu.minor, gpu.compute_capability) for gpu in found.gpus] == [
        (
            pynvml.nvmlDeviceGetUUID(handle),
            pynvml.nvmlDeviceGetName(handle),
            pynvml.nvmlDeviceGetMinorNumber(handle),
            pynvml.nvmlDeviceGetCudaComputeCapability(handle),
        )
        for handle in handles
    ]
    assert [gpu.memory_mib for gpu in found.gpus] == [
        pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20 for handle in handles
    ]
    assert found.problems == ()
    assert found.driver_version == pynvml.nvmlSystemGetDriverVersion()


async def test_mig_flags_are_those_of_nvml(nvml: None) -> None:
    """A card that can be divided says so, and whether it is; each MIG device has a name that NVML gives it, too."""
    for gpu in (await look()).gpus:
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        try:
            mode, _ = pynvml.nvmlDeviceGetMigMode(handle)
        except pynvml.NVMLError:
            mode = None
        assert (gpu.mig_capable, gpu.mig_enabled) == (mode is not None, mode == pynvml.NVML_DEVICE_MIG_ENABLE)
        for device in gpu.mig:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, device.index)
            assert pynvml.nvmlDeviceGetName(part).endswith(device.profile)


async def test_each_replica_is_its_card() -> None:
    """Under time slicing each container sees one of the machine's GPUs."""
    found = await look()
    served = resources(Configuration(plan=NVIDIA_ALONE, nvidia=load(FIVE)), found, strict=True)

    resource = served.resources["nvidia.com/gpu"]
    seen = [resource.allocator.allocate([[each]])[0].envs["NVIDIA_VISIBLE_DEVICES"] for each in resource.devices]

    assert seen == [gpu.uuid for gpu in found.gpus for _ in range(5)]
