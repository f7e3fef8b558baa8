"""What policies/vgpu-node.yaml promises: from the cards of a machine to the end of a container that takes more."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from criproxy.api.device_plugin import DevicePluginCommands
from criproxy.config import load
from criproxy.cri import api_pb2 as api
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.plugin.plan import PluginPlan, UsageSource
from criproxy.model.workload import ContainerState
from tests.conftest import ROOT
from tests.deviceplugin.joined import GPU_A, GPU_B, Joined, joined, pod
from tests.node.devices.quotas import status, why
from tests.node.devices.test_hints import NODE_1, place
from tests.node.devices.test_joined import NODE_0, visible
from tests.watchers import Watcher

RESOURCE = "criproxy.io/gpu-8g"


@pytest.fixture(scope="module")
def section() -> tuple[PluginPlan, DeviceRules]:
    """What the file says to the device plugin and to the daemon."""
    options = load(ROOT / "policies/vgpu-node.yaml", "any").common.devices
    assert options is not None
    plan = options.plan()
    assert plan is not None
    return plan, options.rules()


@pytest.fixture
async def node(folder: Path, section: tuple[PluginPlan, DeviceRules]) -> AsyncIterator[Joined]:
    """Return a node with two GPUs of 16 GiB, whose device plugin follows the file."""
    plan, rules = section
    async with joined(folder, GPU_A, GPU_B, classes=rules.classes) as all_parts:
        await all_parts.offer(plan=plan)
        yield all_parts


async def started(node: Joined, name: str) -> tuple[str, api.ContainerConfig]:
    """Run a pod that requests a vGPU; its container's id, and what the runtime got."""
    spec = pod(name)
    key, config = await node.create(spec, await node.admit(spec, {RESOURCE: 1}))
    request = api.StartContainerRequest(container_id=key)
    await node.world.client.call("StartContainer", request, api.StartContainerResponse)
    return key, config


def watcher(node: Joined, plan: PluginPlan) -> Watcher:
    """One that judges as the file says."""
    commands = DevicePluginCommands(node.world.controller).commands()
    return Watcher(
        lambda command, arguments: commands[command](arguments),
        plan=plan.quota,
        stop_timeout_s=plan.quota.stop_timeout_s,
    )


async def test_two_vgpus_fit_on_each_card(node: Joined) -> None:
    """A pod that requests one gets a card, and CPUs and memory next to it; without HAMi-core its use is watched."""
    assert node.kubelet.capacity(RESOURCE) == (4, 4)

    _, config = await started(node, "web")

    assert (visible(config), place(config)) in ((b"GPU-a", NODE_0), (b"GPU-b", NODE_1))
    assert config.annotations["devices.criproxy.io/memory-mib"] == "8192"
    assert '"by":["watch"]' in config.annotations["devices.criproxy.io/enforcement"]
    assert not config.mounts


async def test_who_uses_more_memory_is_stopped(node: Joined, section: tuple[PluginPlan, DeviceRules]) -> None:
    """Beyond quota and margin for longer than the grace, it is stopped with a reason; its neighbour runs on."""
    plan, _ = section
    greedy, config = await started(node, "greedy")
    modest, _ = await started(node, "modest")
    watching = watcher(node, plan)

    for at_s in range(6):  # as long as the grace
        await watching.read(at_s, greedy=9000, modest=8700)
    assert (await status(node.world, greedy)).state == api.CONTAINER_RUNNING
    await watching.read(6, greedy=9000, modest=8700)
    await node.world.poll(lambda: node.world.controller.node.containers[greedy].state is ContainerState.EXITED)

    said = f"9000 MiB used, 8192 MiB allowed on {visible(config).decode()}"
    assert why(await status(node.world, greedy)) == ("GPUMemoryQuotaExceeded", said)
    neighbour = await status(node.world, modest)
    assert (neighbour.state, *why(neighbour)) == (api.CONTAINER_RUNNING, "", "")


def test_what_happens_is_what_the_file_says(section: tuple[PluginPlan, DeviceRules]) -> None:
    """Memory is worth a stop and computing time a record; the driver tells both."""
    plan, _ = section

    assert plan.usage == (UsageSource(kind="nvidia", source="nvml"),)
    assert (plan.quota.action("nvidia", "memory"), plan.quota.action("nvidia", "cores")) == ("stop", "observe")
    assert (plan.quota.period_s, plan.quota.grace_s, plan.quota.samples, plan.quota.margin_mib) == (1.0, 5.0, 3, 512)
