"""A real NVIDIA GPU as the device plugin offers it."""

import asyncio
import os
from typing import Any

import pynvml
import pytest

from criproxy.deviceplugin.cards.card_offers import Configuration
from criproxy.deviceplugin.cards.inventory import Inventory, Machine
from criproxy.deviceplugin.health import nvml_events
from criproxy.deviceplugin.health.events_watch import EventsWatch
from criproxy.deviceplugin.health.nvml_events import Registered
from criproxy.deviceplugin.nvidia.resources import counted_gpus
from criproxy.deviceplugin.nvidia.xids import XID_CRITICAL
from criproxy.deviceplugin.resources.resource_builder import build_resources
from criproxy.deviceplugin.server.resource import Resource
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.plugin.plan import NVIDIA_ALONE
from tests.deviceplugin.nvidia.files import config_of
from tests.gpu.test_real import usable
from tests.node.world import RecordingLog

PATIENT_S = 60.0
FIVE = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 5}]}}"


async def scan() -> Inventory:
    """This machine's cards, by a process that asks NVML."""
    return await Machine([NVIDIA]).scan()


async def test_the_gpus_are_those_of_nvml(nvml: None) -> None:
    """In its order, with memory, compute capability and place; nothing hangs or is missing."""
    found = await scan()

    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    assert [gpu.uuid for gpu in found.gpus] == list(map(pynvml.nvmlDeviceGetUUID, handles))
    assert [gpu.name for gpu in found.gpus] == list(map(pynvml.nvmlDeviceGetName, handles))
    capabilities = list(map(pynvml.nvmlDeviceGetCudaComputeCapability, handles))
    assert [gpu.compute_capability for gpu in found.gpus] == capabilities
    sizes = [pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20 for handle in handles]
    assert [gpu.memory_mib for gpu in found.gpus] == sizes
    assert found.problems == ()
    assert found.driver_version == pynvml.nvmlSystemGetDriverVersion()


async def test_mig_flags_are_those_of_nvml(nvml: None) -> None:
    """A card that can be divided says so, and whether it is; each MIG device has a name that NVML gives it, too."""
    for gpu in (await scan()).gpus:
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
    found = await scan()
    resource = offered(found)

    seen = [resource.allocation([each]).envs["NVIDIA_VISIBLE_DEVICES"] for each in resource.devices]

    assert seen == [gpu.uuid for gpu in counted_gpus(found.gpus) for _ in range(5)]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a /dev of its own, which needs root")
async def test_a_cuda_program_under_time_slicing_sees_one_card() -> None:
    """With the nodes of a replica, or of two of one card, CUDA uses that card and no other."""
    found = await scan()
    resource = offered(found, "flags: {plugin: {passDeviceSpecs: true}}\n")
    whole = [gpu.uuid for gpu in counted_gpus(found.gpus) if not gpu.mig_enabled]

    for card in whole:
        for ids in ([f"{card}::0"], [f"{card}::1", f"{card}::2"]):
            response = resource.allocation(ids)
            assert usable([node.host_path for node in response.devices]) == 1


async def test_health_events_are_registered(nvml: None) -> None:
    """Of every GPU that has events of critical errors; those that NVML supports less are no failure."""
    uuids = [gpu.uuid for gpu in (await scan()).gpus]
    registered: asyncio.Future[Registered] = asyncio.get_running_loop().create_future()
    log = RecordingLog()
    watch = EventsWatch(nvml_events.COMMAND, registered.set_result, lambda event: None, log)
    watch.use(uuids)
    running = asyncio.create_task(watch.run())
    async with asyncio.timeout(PATIENT_S):
        ends: set[asyncio.Future[Any]] = {running, registered}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert registered.done(), log.lines
    found = registered.result()
    assert found.failed == {}
    assert set(found.gpus) <= set(uuids)
    assert {uuid for uuid in uuids if tells_of_errors(uuid)} <= set(found.gpus)


def offered(found: Inventory, flags: str = "") -> Resource:
    """The machine's GPUs, each in five replicas."""
    served = build_resources(Configuration(plan=NVIDIA_ALONE, nvidia=config_of(flags + FIVE)), found, strict=True)
    return served.resources["nvidia.com/gpu"]


def tells_of_errors(uuid: str) -> bool:
    """Whether NVML has events of critical errors of a GPU."""
    try:
        kinds = pynvml.nvmlDeviceGetSupportedEventTypes(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError:
        return False
    return bool(kinds & XID_CRITICAL)
