"""A node with all parts: a made-up kubelet, our device plugin, and criproxy before a runtime.

The host is that of the acceptance scenarios: CPUs 0-15 on NUMA node 0 with GPU-a, CPUs 16-31 on node 1 with GPU-b.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from criproxy.cri import api_pb2 as api
from criproxy.deviceplugin.cards.card_offers import Configuration
from criproxy.deviceplugin.cards.inventory import Machine
from criproxy.deviceplugin.cards.nvml_inventory import NvmlProgram
from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.deviceplugin.resources.resource_builder import Served, build_resources
from criproxy.deviceplugin.server.state import Times
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.device_rules import DeviceRules, KubeletFiles
from criproxy.devices.plugin.plan import NVIDIA_ALONE, PluginPlan
from lab.kubelet.device_endpoint import Given, add
from lab.kubelet.kubelet import CREATE_TIMEOUT_S, PodSpec, container_config, sandbox_config
from tests.deviceplugin.hosts import PATIENT, Host, t4
from tests.deviceplugin.kubelet import CHECKPOINT, FakeKubelet, Pod
from tests.deviceplugin.news import PATIENT_S
from tests.deviceplugin.node import GPU, QUICK, Node
from tests.deviceplugin.nvidia.files import config_of
from tests.node.devices.test_hints import AWARE, SIZES, TWO, run
from tests.node.world import FAST, GIB, World
from tests.nvml import Driver, command


def _gpu(minor: int, uuid: str, address: str) -> Gpu:
    return replace(t4(minor, numa_node=minor), uuid=uuid, memory_mib=16_384, pci_bus_id=f"0000{address}")


GPU_A, GPU_B = _gpu(0, "GPU-a", "0000:3B:00.0"), _gpu(1, "GPU-b", "0000:AF:00.0")
SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
KUBELET_FILES = KubeletFiles(
    socket="/k/pod-resources/kubelet.sock", checkpoint=f"/k/device-plugins/{CHECKPOINT}", timeout_s=PATIENT_S
)


def pod(name: str, qos: str = "Burstable") -> PodSpec:
    """A pod with one container, ``main``."""
    return PodSpec(name, (SIZES[qos],))


def plug_gpus(host: Host, *gpus: Gpu) -> None:
    """Add GPUs of NVIDIA's, and the nodes that they share."""
    host.use(Driver(gpus=gpus))
    for path in SHARED_NODES:
        host.text(path)
    for gpu in gpus:
        host.gpu(gpu)


class Joined:
    """Everything below *folder*, whose path has to be short.

    Args:
        folder: for the machine's folders, the kubelet's, and all sockets.
        classes: those that criproxy knows.
        times: pauses of the device plugin.
    """

    def __init__(self, folder: Path, classes: tuple[DeviceClass, ...], times: Times) -> None:
        self.host = Host(folder)
        self.host.root.mkdir()
        self.node = Node(self.host.root / "k", times=times)
        rules = DeviceRules(classes=classes, kubelet=KUBELET_FILES)
        self.world = World(self.host.root, settings=replace(FAST, devices=rules), policy=AWARE, topology=TWO)
        self._sandboxes: dict[str, str] = {}
        """By the UID of the pod."""

    @property
    def kubelet(self) -> FakeKubelet:
        """The kubelet."""
        return self.node.kubelet

    async def publish(self, text: str = "version: v1", plan: PluginPlan = NVIDIA_ALONE) -> Served:
        """Offer the machine's cards as the device plugin does: *text* is NVIDIA's file, *plan* our own section."""
        kinds = [each.kind for each in plan.advertised]
        machine = Machine(kinds, self.host.root, NvmlProgram(command(self.host.nvml), PATIENT_S), PATIENT)
        while (found := await machine.scan()).pending:
            pass  # each look waits for NVML
        await machine.close()
        served = build_resources(Configuration(plan=plan, nvidia=config_of(text)), found, strict=True)
        self.node.plugins.publish(served.resources)
        return served

    async def offer(self, text: str = "version: v1", plan: PluginPlan = NVIDIA_ALONE) -> None:
        """The same; returns when the kubelet has all ids."""
        wanted = {name: set(each.devices) for name, each in (await self.publish(text, plan)).resources.items()}
        await self.kubelet.until(lambda: all(self.kubelet.healthy(name) == ids for name, ids in wanted.items()))

    async def admit(self, spec: PodSpec, wanted: Mapping[str, int], *, running: bool = False) -> Mapping[str, Given]:
        """What the only container of *spec* gets: the kubelet allocates before it creates the sandbox."""
        return await self.kubelet.admit(Pod(spec.uid, spec.name), wanted, running=running)

    async def create(
        self, spec: PodSpec, given: Mapping[str, Given], *volumes: api.Mount, attempt: int = 0
    ) -> tuple[str, api.ContainerConfig]:
        """Create the container with what was *given*, and its *volumes*; its id, and what the runtime got."""
        if spec.uid not in self._sandboxes:
            self._sandboxes[spec.uid] = await run(self.world.client, spec)
        request = api.CreateContainerRequest(
            pod_sandbox_id=self._sandboxes[spec.uid],
            config=container_config(spec, spec.containers[0], 8 * GIB, attempt),
            sandbox_config=sandbox_config(spec),
        )
        add(request.config, given.values())
        request.config.mounts.extend(volumes)
        client = self.world.client
        reply = await client.call("CreateContainer", request, api.CreateContainerResponse, CREATE_TIMEOUT_S)
        return reply.container_id, self.world.runtime.core.records.containers[reply.container_id].config

    async def complete(self, spec: PodSpec, key: str) -> None:
        """Let the pod's container end by itself: the kubelet stops the sandbox, and frees what the pod had."""
        self.world.runtime.exit_container(key)
        await self.world.kubelet.stop_sandbox(self._sandboxes[spec.uid])
        self.kubelet.remove(Pod(spec.uid))

    async def run(self, spec: PodSpec, wanted: Mapping[str, int]) -> tuple[tuple[str, ...], api.ContainerConfig]:
        """Admit a pod and create its container; the ids that it has, and what the runtime got."""
        given = await self.admit(spec, wanted)
        _, config = await self.create(spec, given)
        return tuple(one for each in given.values() for one in each.ids), config


def sharing(replicas: int = 5, **options: bool) -> str:
    """NVIDIA's file with time-slicing of all GPUs."""
    words = "".join(f", {name}: {str(value).lower()}" for name, value in options.items())
    return f"version: v1\nsharing: {{timeSlicing: {{resources: [{{name: {GPU}, replicas: {replicas}}}]{words}}}}}\n"


def replicas(*uuids: str, each: int = 5) -> set[str]:
    """The ids of shared cards."""
    return {f"{uuid}::{number}" for uuid in uuids for number in range(each)}


def nodes(config: api.ContainerConfig) -> list[tuple[str, str]]:
    """The device nodes of a create as the runtime got it, with their permissions."""
    return [(device.host_path, device.permissions) for device in config.devices]


def with_shared(*paths: str) -> set[tuple[str, str]]:
    """These nodes and those that all GPUs share."""
    return {(path, "rw") for path in (*paths, *SHARED_NODES)}


@asynccontextmanager
async def joined(
    folder: Path, *gpus: Gpu, classes: tuple[DeviceClass, ...] = (NVIDIA,), times: Times = QUICK
) -> AsyncIterator[Joined]:
    """Start all parts on a machine with *gpus*; `Joined.offer` follows."""
    all_parts = Joined(folder, classes, times)
    if gpus:
        plug_gpus(all_parts.host, *gpus)
    async with asyncio.timeout(PATIENT_S), all_parts.world:
        try:
            await all_parts.kubelet.start()
            all_parts.node.start_plugins()
            yield all_parts
        finally:
            await all_parts.node.stop()
