"""CPUs and memory follow the cards: from the kubelet's evidence to the cpuset that the runtime gets.

The host is that of the acceptance scenarios: CPUs 0-15 with GPU-a and 16-31 with GPU-b.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeClient
from criproxy.cri.stamp import ANNOTATION, read_stamp
from criproxy.devices.classes.builtin import AMD, NVIDIA
from criproxy.devices.device_rules import DeviceRules, KubeletFiles
from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.grant import Grant
from criproxy.model.record import Kind
from criproxy.node.settings import DeviceLimits
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import machine
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import CREATE_TIMEOUT_S, ContainerSpec, PodSpec, sandbox_config
from tests.allocations import Allocated, Allocations
from tests.devices.fixture import ALI
from tests.node.world import FAST, GIB, World

TWO = machine(nodes=2, cores=16, threads=1)
PATIENT_S = 60.0
"""No bound that a slow machine exceeds."""
RULES = DeviceRules(classes=(NVIDIA, AMD, ALI), kubelet=KubeletFiles(checkpoint="/k/checkpoint", timeout_s=PATIENT_S))
AWARE = TopologyAwarePolicy(TopologyAwareOptions.model_validate({"reservedCpus": "0"}))
GPU = "nvidia.com/gpu"
SIZES = {
    "Guaranteed": ContainerSpec("main", IMAGE, cpu_limit_milli=2000, memory_limit_bytes=GIB),
    "Burstable": ContainerSpec("main", IMAGE, cpu_request_milli=500, memory_limit_bytes=GIB),
    "BestEffort": ContainerSpec("main", IMAGE),
}
LARGE = PodSpec("large", (ContainerSpec("main", IMAGE, cpu_limit_milli=8000, memory_limit_bytes=GIB),))
NODE_1 = (parse_cpuset("16-31"), "1")


def host(directory: Path) -> None:
    """The cards of the scenarios below *directory*."""
    for name in ("nvidia0", "nvidia1", "nvidiactl", "dri/card1", "dri/renderD129", "kfd", "npu0"):
        path = directory / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for minor, (uuid, address) in enumerate((("GPU-a", "0000:3b:00.0"), ("GPU-b", "0000:af:00.0"))):
        folder = directory / f"proc/driver/nvidia/gpus/{address}"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"GPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
        numa_node(directory / f"sys/bus/pci/devices/{address}", minor)
    numa_node(directory / "sys/class/drm/card1/device", 1)
    numa_node(directory / "sys/class/npu/npu0/device", 1)


def numa_node(folder: Path, number: int) -> None:
    """A device of which the kernel tells its NUMA node."""
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text(f"{number}\n")


@dataclass(slots=True)
class Node:
    """A node whose kubelet has written down what it allocated."""

    world: World
    kubelet: Allocations

    async def create(
        self,
        pod: PodSpec,
        *ids: str,
        resource: str = GPU,
        devices: tuple[str, ...] = (),
        cdi: str = "",
        direct: bool = False,
        cpus: str = "",
    ) -> tuple[str, api.ContainerConfig]:
        """Create the only container of *pod*, to which *ids* are allocated; its id, and what the runtime got."""
        if ids:
            given = Allocated(pod=pod.name, pod_uid=pod.uid, resource=resource, ids=ids)
            self.kubelet.entries.append(given)
        self.kubelet.write()

        def change(request: api.CreateContainerRequest) -> None:
            request.config.linux.resources.cpuset_cpus = cpus
            for path in devices:
                request.config.devices.add(container_path=path, host_path=path, permissions="rw")
            if cdi:
                request.config.CDI_devices.add(name=cdi)
            if ids and resource == GPU:
                request.config.envs.add(key="NVIDIA_VISIBLE_DEVICES", value=",".join(ids).encode())

        return await self.world.create_as(pod, change, by=self.world.direct if direct else None)

    def cpus(self, key: str) -> str:
        """The CPUs of a container as the runtime has them now."""
        return self.world.runtime.core.records.containers[key].resources.cpuset_cpus

    def hints(self) -> Mapping[str, tuple[CpuSet, ...]]:
        """Of each container, by its pod."""
        return {each.pod_name: each.hints for each in self.world.controller.node.containers.values()}

    def grants(self) -> Mapping[str, Grant]:
        """By pod, as far as they have one."""
        node = self.world.controller.node
        return {each.pod_name: node.grants[key] for key, each in node.containers.items() if key in node.grants}


async def run(client: RuntimeClient, pod: PodSpec) -> str:
    """Make the sandbox of *pod*; its id."""
    request = api.RunPodSandboxRequest(config=sandbox_config(pod))
    return (await client.call("RunPodSandbox", request, api.RunPodSandboxResponse, CREATE_TIMEOUT_S)).pod_sandbox_id


def node_at(directory: Path, rules: DeviceRules = RULES, limits: DeviceLimits | None = None) -> Node:
    """The host, not started yet; with limits that a test needs to be other than those of `FAST`."""
    host(directory)
    settings = replace(FAST, devices=rules, device_limits=limits or FAST.device_limits)
    kubelet = Allocations(directory / "k/sock", directory / "k/checkpoint")
    return Node(World(directory, settings=settings, policy=AWARE, topology=TWO), kubelet)


def place(config: api.ContainerConfig) -> tuple[CpuSet, str]:
    """CPUs and memory nodes that the runtime was told."""
    resources = config.linux.resources
    return parse_cpuset(resources.cpuset_cpus), resources.cpuset_mems


def pod_of(qos: str, name: str = "gpu", **annotations: str) -> PodSpec:
    """A pod of a class, with annotations by their keys."""
    named = {f"{key.replace('_', '.')}.criproxy.io/pod": value for key, value in annotations.items()}
    return PodSpec(name, (SIZES[qos],), annotations=named)


@pytest.mark.parametrize("qos", list(SIZES))
async def test_3_cpus_and_memory_of_the_card(node: Node, qos: str) -> None:
    """GPU-b is on node 1; memory without a limit is left to the kernel, which takes it next to the CPUs."""
    _, config = await node.create(pod_of(qos), "GPU-b")

    cpus, mems = place(config)
    assert cpus <= NODE_1[0]
    assert mems == ("0-1" if qos == "BestEffort" else "1")
    assert node.hints() == {"gpu": (frozenset({1}),)}
    (record,) = [
        r for r in await node.world.controller.context.state.find_history("default/gpu/main") if r.kind is Kind.DEVICES
    ]
    assert "nvidia: GPU-b (0000:af:00.0) is next to NUMA node 1" in record.sentences
    assert {"nvidia_pci": "0000:af:00.0", "nvidia_numa": "1"}.items() <= record.facts.items()


async def test_12_a_class_of_ones_own(node: Node) -> None:
    """Its node tells where it is."""
    _, config = await node.create(pod_of("Burstable"), "npu0", resource="aliyun.com/npu")

    assert place(config) == NODE_1
    assert [device.host_path for device in config.devices] == ["/dev/npu0"]


async def test_13_an_amd_card_by_its_nodes(tmp_path: Path) -> None:
    """Ids that mean nothing to us are PCI addresses; the nodes that the plugin passed tell which card it is."""
    nodes = ("/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD129")
    node = node_at(tmp_path)
    async with node.world:
        _, config = await node.create(pod_of("Burstable"), "0000:43:00.0", resource="amd.com/gpu", devices=nodes)

        assert place(config) == NODE_1
        assert [device.host_path for device in config.devices] == list(nodes)
        assert [env.value for env in config.envs if env.key == "AMD_VISIBLE_DEVICES"] == [b"void"]


@pytest.mark.parametrize("forced", [False, True])
async def test_14_who_was_created_before_by_a_hook_is_left(tmp_path: Path, forced: bool) -> None:
    """No node of its card was made in it, so that no update is sent, and nobody owns CPUs there, unless wanted."""
    node = node_at(tmp_path, replace(RULES, update_without_nodes=forced))
    async with node.world:
        await node.world.stop_criproxy()
        legacy, _ = await node.create(pod_of("Burstable", "legacy"), "GPU-b", direct=True, cpus="16-31")
        await node.world.start_known()

        await node.create(LARGE, "GPU-b")
        await node.world.controller.idle()

        assert node.grants()["large"].exclusive <= (NODE_1[0] if forced else parse_cpuset("0-15"))
        assert (node.cpus(legacy) == "16-31") is not forced
        assert node.world.counters.devices["nvidia", "no-device-nodes"] == 1
        told = [
            r.facts.get("reason") for r in await node.world.controller.context.state.find_history("default/legacy/main")
        ]
        assert ("no-device-nodes" in told) is not forced


async def test_14_nodes_that_a_plugin_passed_let_it_move(node: Node) -> None:
    """Who was created before with the node of its card is moved like anybody else."""
    passed = ("/dev/nvidia1",)
    before, _ = await node.create(pod_of("Burstable", "b"), "GPU-b", devices=passed, direct=True, cpus="16-31")
    await node.world.restart_known()

    await node.create(LARGE, "GPU-b")
    await node.world.controller.idle()

    assert node.grants()["large"].exclusive <= NODE_1[0]
    assert parse_cpuset(node.cpus(before)).isdisjoint(node.grants()["large"].exclusive)


@pytest.mark.parametrize("forced", [False, True])
async def test_14_ours_without_nodes(tmp_path: Path, forced: bool) -> None:
    """One that shares is created in its place and stays there, also over a restart; an owner keeps what it owns."""
    rules = replace(RULES, keep_access_on_update=False, update_without_nodes=forced)
    node = node_at(tmp_path, rules)
    async with node.world:
        sharer, config = await node.create(pod_of("Burstable", "sharer"), "GPU-b")
        await node.create(pod_of("Guaranteed", "first"), "GPU-a")
        assert place(config) == NODE_1
        await node.world.restart_known()

        await node.create(LARGE, "GPU-b")
        await node.world.controller.idle()

        assert len(node.grants()["first"].exclusive) == 2
        assert node.grants()["large"].exclusive <= (NODE_1[0] if forced else parse_cpuset("0-15"))
        assert (node.cpus(sharer) == "16-31") is not forced
        assert ("sharer" in node.grants()) is forced
        records = await node.world.controller.context.state.find_history("default/sharer/main")
        said = [sentence for record in records for sentence in record.sentences if "has no device node" in sentence]
        assert said[0].endswith("take the card away" if forced else "so criproxy leaves it where it is")


@pytest.mark.parametrize(("name", "expected"), [("GPU-b", NODE_1), ("all", None)])
async def test_17_a_cdi_name(node: Node, name: str, expected: tuple[CpuSet, str] | None) -> None:
    """It tells the card; one that tells none gives no hint."""
    _, config = await node.create(pod_of("Burstable"), cdi=f"nvidia.com/gpu={name}")

    assert bool(node.hints()["gpu"]) is bool(expected)
    if expected:
        assert place(config) == expected


async def test_a_restart_and_a_resize_keep_it(node: Node) -> None:
    """The store has the hint, so that a container that grows stays next to its card."""
    key, _ = await node.create(pod_of("Guaranteed"), "GPU-b")
    await node.world.restart()
    assert node.hints() == {"gpu": (frozenset({1}),)}

    larger = api.LinuxContainerResources(cpu_period=100_000, cpu_quota=400_000, cpu_shares=4096)
    await node.world.client.update_container_resources(key, larger)

    assert len(node.grants()["gpu"].exclusive) == 4
    assert node.grants()["gpu"].exclusive <= NODE_1[0]


@pytest.mark.parametrize(("lists", "damaged"), [(False, False), (True, False), (False, True)])
async def test_18_recovery_without_a_state(tmp_path: Path, node: Node, lists: bool, damaged: bool) -> None:
    """Three containers are found again with their cards: ours by their stamps, a stranger's by the checkpoint.

    A damaged checkpoint is told, and costs the stranger's hint alone.
    """
    _, config = await node.create(pod_of("Guaranteed", "owner"), "GPU-b")
    await node.create(pod_of("Burstable", "sharer"), "GPU-a", "GPU-b")
    await node.create(pod_of("Burstable", "stranger"), "GPU-b", direct=True)
    stamp = read_stamp(config.annotations)
    assert stamp is not None
    assert (stamp.hints, "hints" in config.annotations[ANNOTATION]) == ("1", True)
    hints, grants = {**node.hints(), "stranger": (frozenset({1}),)}, node.grants()
    await node.world.stop_criproxy()
    rmtree(tmp_path / "state")
    node.kubelet.write(lists=lists)
    if damaged:
        node.kubelet.checkpoint.write_text("{")

    await node.world.start_known()

    assert node.hints() == hints | ({"stranger": ()} if damaged else {})
    assert node.grants()["owner"] == grants["owner"]
    assert ("the kubelet does not report what it allocated" in node.world.log.events()) is damaged
