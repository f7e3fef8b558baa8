"""Random lives of pods on a node whose kubelet allocates GPUs by the rules of its device manager."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.device_rules import DeviceRules, KubeletFiles
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import CREATE_TIMEOUT_S, ContainerSpec, PodSpec, container_config, sandbox_config
from tests.allocations import Allocated, Allocations
from tests.node.devices.test_guard import host
from tests.node.world import FAST, World

GPU = "nvidia.com/gpu"
CARDS = 8
NAMES = ("web-0", "web-1", "batch", "train", "plain")
"""Few, so that pods are often made anew under the name of a former one."""
PODS = 200
PATIENT_S = 60.0
RULES = DeviceRules(
    classes=(NVIDIA,), kubelet=KubeletFiles(socket="/k/sock", checkpoint="/k/checkpoint", timeout_s=PATIENT_S)
)


def uuid_of(minor: int) -> str:
    """The id of a card; the first half is on NUMA node 0."""
    return f"GPU-{minor:04x}"


@dataclass(slots=True)
class Pod:
    """One that runs."""

    spec: PodSpec
    sandbox_id: str
    cards: Mapping[str, set[int]]
    """Minors by container."""


@dataclass(slots=True)
class Life:
    """A node, its kubelet, and the pods on it."""

    node: World
    kubelet: Allocations
    random: Random
    running: dict[str, Pod] = field(default_factory=dict)
    attempts: int = 0

    async def step(self) -> None:
        """Something happens, and a pod comes."""
        happens = self.random.random()
        if happens < 0.05:
            await self.kubelet.stop()
            self.kubelet.get = self.random.choice(("known", "unknown", "disabled"))
            await self.kubelet.start()
        elif happens < 0.10:
            await self.kubelet.stop()  # podresources is gone: the checkpoint tells
            self.kubelet.socket.unlink(missing_ok=True)
        elif happens < 0.15:
            await self.node.stop_criproxy()
            await self.node.start_criproxy()
        while len(self.running) == len(NAMES) or (self.running and self.random.random() < 0.4):
            await self.end(self.random.choice(sorted(self.running)))
        await self.begin(self.random.choice([name for name in NAMES if name not in self.running]))

    async def begin(self, name: str) -> None:
        """Admit and run a pod; each of its containers gets what was allocated to it."""
        self.attempts += 1
        containers = [ContainerSpec(f"c{number}", IMAGE) for number in range(self.random.randint(1, 3))]
        spec = PodSpec(name, tuple(containers), given_uid=f"uid-{self.attempts}")
        cards = self.allocate(spec)
        self.running[name] = Pod(spec, await self.node.kubelet.run_sandbox(spec), cards)
        for container in containers:
            await self.create(self.running[name], container)

    def allocate(self, spec: PodSpec) -> dict[str, set[int]]:
        """As at admission: what ended is freed now, every container gets free cards, and the file is written."""
        kubelet, alive = self.kubelet, {pod.spec.uid for pod in self.running.values()}
        ended = [each for each in kubelet.entries if each.pod_uid not in alive]
        kubelet.former = ended if self.random.random() < 0.5 else []
        kubelet.entries = [each for each in kubelet.entries if each.pod_uid in alive]
        free = set(range(CARDS)).difference(*(ids for pod in self.running.values() for ids in pod.cards.values()))
        cards: dict[str, set[int]] = {}
        for container in spec.containers:
            wanted = self.random.choice((0, 0, 1, 2))
            cards[container.name] = given = set(self.random.sample(sorted(free), min(wanted, len(free))))
            free -= given
            known = Allocated(pod=spec.name, pod_uid=spec.uid, container=container.name)
            kubelet.entries.append(known)
            kubelet.entries += [
                replace(known, resource=GPU, ids=(uuid_of(minor),), numa=minor * 2 // CARDS) for minor in sorted(given)
            ]
        kubelet.write(lists=self.random.random() < 0.5)
        return cards

    async def create(self, pod: Pod, container: ContainerSpec) -> None:
        """The plugin's variable comes first, and the pod's own, if it has one, after it."""
        cards = pod.cards[container.name]
        ids = [uuid_of(minor) for minor in cards]
        request = api.CreateContainerRequest(
            pod_sandbox_id=pod.sandbox_id,
            config=container_config(pod.spec, container, 8 << 30),
            sandbox_config=sandbox_config(pod.spec),
        )
        for value in [",".join(ids)] * bool(ids) + self.random.choice(([], ["all"], [uuid_of(0)])):
            request.config.envs.add(key="NVIDIA_VISIBLE_DEVICES", value=value.encode())
        reply = await self.node.client.call("CreateContainer", request, api.CreateContainerResponse, CREATE_TIMEOUT_S)
        config = self.node.runtime.core.records.containers[reply.container_id].config

        (shown,) = [env.value.decode() for env in config.envs if env.key == "NVIDIA_VISIBLE_DEVICES"]
        assert sorted(shown.split(",")) == (sorted(ids) or ["void"]), (pod, container)
        nodes = {f"/dev/nvidia{minor}" for minor in cards} | ({"/dev/nvidiactl"} if cards else set())
        assert {device.host_path for device in config.devices} == nodes, (pod, container)

    async def end(self, name: str) -> None:
        """Remove a pod; the kubelet frees its cards at the next admission only."""
        await self.node.kubelet.remove_pod(self.running.pop(name).sandbox_id)


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[Allocations]:
    """One that serves podresources."""
    kubelet = Allocations(tmp_path / "k/sock", tmp_path / "k/checkpoint")
    await kubelet.start()
    yield kubelet
    await kubelet.stop()


async def test_lives(tmp_path: Path, kubelet: Allocations) -> None:
    """Every container sees its cards and no others, over restarts of both sides, and nothing is left at the end."""
    host(tmp_path, [uuid_of(minor) for minor in range(CARDS)])
    async with World(tmp_path, settings=replace(FAST, devices=RULES)) as node:
        life = Life(node, kubelet, Random(1))
        for _ in range(PODS // 2):
            await life.step()
        for name in sorted(life.running):
            await life.end(name)

        await node.poll(lambda: not node.controller.node.containers)
        guard = node.controller.devices
        assert not guard._runtimes
        source = guard.evidence.source
        assert not source._inquiries
        assert set(kubelet.asked) == {"Get", "List"}
