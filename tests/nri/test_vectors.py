"""Where `criproxy simulate` places the containers of a scenario, a node does, as a proxy and as an NRI plugin."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from criproxy.cri.runtime import RuntimeCallError
from criproxy.model.machine.topology import Topology
from criproxy.model.planned import Amounts, ContainerPlan, PodPlan
from criproxy.model.workload import ContainerState
from criproxy.simulate.scenario.runner import runs
from criproxy.simulate.scenario.seen import Placed
from criproxy.simulate.scenario.settings import Configuration, settings
from criproxy.simulate.scenario.steps import Advance, Create, Delete, Resize, Start, Step
from criproxy.simulate.scenario.vectors import Vector, load
from criproxy.simulate.scenario.world import World as Simulated
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec, resized_resources
from tests.conftest import ROOT
from tests.node.world import FAST, World
from tests.nri.plugged_world import PluggedWorld

PEERS = ROOT / "tests/scenarios/peers.yaml"
FRONTS = {"as a proxy": World, "as a plugin": PluggedWorld}
LEAST = 70
"""So often cases are played, once for each of their rules."""


def can_be_played(vector: Vector) -> bool:
    """Not where somebody's cards have NUMA nodes, of which a made-up machine has none, or where time has to pass.

    Nor where a pod is resized that is called Burstable, and of which no kubelet would say so.
    """
    actions = [each.action for each in vector.steps]
    pods = [each.pod for each in actions if isinstance(each, Create)]
    hinted = any(one.hints for pod in pods for one in pod.containers)
    odd = any(pod_of(pod).qos != pod.qos.value for pod in pods) and any(isinstance(each, Resize) for each in actions)
    return not (vector.unit or hinted or odd or any(isinstance(each, Advance) for each in actions))


def spec_of(plan: ContainerPlan) -> ContainerSpec:
    """What a pod says of a container."""
    sizes = plan.amounts
    return ContainerSpec(
        plan.name,
        IMAGE,
        cpu_request_milli=sizes.cpu_request_milli,
        cpu_limit_milli=sizes.cpu_limit_milli or 0,
        memory_request_bytes=sizes.memory_request_bytes,
        memory_limit_bytes=sizes.memory_limit_bytes or 0,
    )


def pod_of(plan: PodPlan) -> PodSpec:
    """A pod as the kubelet knows it."""
    containers = tuple(spec_of(each) for each in plan.containers if not each.init)
    return PodSpec(plan.name, containers, plan.namespace, plan.annotations, plan.labels)


@dataclass
class Replay:
    """A node on which the steps of a case are taken."""

    kind: type[World]
    folder: Path
    topology: Topology
    rules: str
    stack: AsyncExitStack
    world: World = field(init=False)
    _kubelet: MiniKubelet = field(init=False)
    _sandboxes: dict[str, str] = field(default_factory=dict)
    """By the name of the pod."""
    _containers: dict[str, tuple[PodSpec, str]] = field(default_factory=dict)
    """Pod and id of those that are there, by name."""
    _starts: int = 0
    """How many there were."""

    async def start(self, configuration: Configuration) -> None:
        """A policy without containers."""
        await self.stack.aclose()
        self._starts += 1
        (place := self.folder / f"{self._starts}").mkdir()
        policy = settings(configuration, self.rules, self.topology).build_policy()
        self.world = await self.stack.enter_async_context(self.kind(place, None, FAST, policy, self.topology))
        self._kubelet = MiniKubelet(self.world.client, memory_capacity_bytes=self.topology.capacity_bytes)
        self._sandboxes.clear()
        self._containers.clear()
        await self.world.poll(lambda: self.world.controller.ready)

    async def take(self, step: Step) -> str:
        """Take one step; what a refusal says, or nothing."""
        try:
            match step.action:
                case Create(pod):
                    await self._create(pod)
                case Resize(container, _, amounts):
                    await self._resize(container, amounts)
                case Delete(pods):
                    for name in pods or [*self._sandboxes]:
                        await self._delete(name)
        except RuntimeCallError as error:
            return error.details
        finally:
            await self._settled()
        return ""

    async def _create(self, plan: PodPlan) -> None:
        pod = pod_of(plan)
        sandbox_id = self._sandboxes[pod.name] = await self._kubelet.run_sandbox(pod)
        for each in plan.containers:
            container_id = await self._kubelet.create(pod, sandbox_id, spec_of(each))
            self._containers[each.name] = pod, container_id
            await self._kubelet.start(container_id)
            await self._settled()
            if each.init:
                self.world.runtime.exit_container(container_id)
                await self._ended(container_id)
                del self._containers[each.name]

    async def _resize(self, name: str, amounts: Amounts) -> None:
        pod, container_id = self._containers[name]
        spec = spec_of(ContainerPlan(name, amounts))
        resources = resized_resources(pod, spec, self.topology.capacity_bytes)
        await self._kubelet.update(container_id, resources)

    async def _delete(self, name: str) -> None:
        await self._kubelet.remove_pod(self._sandboxes.pop(name))
        gone = [each for each, (pod, _) in self._containers.items() if pod.name == name]
        ids = {self._containers.pop(each)[1] for each in gone}
        await self.world.until(lambda: not ids & self.world.controller.node.containers.keys())

    async def _ended(self, container_id: str) -> None:
        """An init container ends when its pod's next one is created; only then somebody else may have its CPUs."""
        state = self.world.controller.context.state
        await self.world.until(lambda: state.node.containers[container_id].state is ContainerState.EXITED)

    async def _settled(self) -> None:
        await self.world.booked()
        await self.world.rested()

    def placed(self) -> Mapping[str, Placed]:
        """Where everybody is."""
        node = self.world.controller.node
        found = dict[str, Placed]()
        for name, (pod, container_id) in self._containers.items():
            grant = node.grants.get(container_id)
            everywhere = Placed(self.topology.online_cpus, self.topology.mems, pod=pod.name)
            found[name] = (
                Placed(grant.cpus, grant.mems or everywhere.mems, grant.exclusive, grant.pool, pod.name)
                if grant
                else everywhere
            )
        return found


async def play(vector: Vector, rules: str, replay: Replay) -> list[str]:
    """Where a node differs from the simulation, step by step."""
    simulated = Simulated(replay.topology, rules)
    differences = list[str]()
    steps = [each for each in vector.steps if each.only in ("", rules)]
    if vector.configuration:
        simulated.start(vector.configuration, vector.line)
        await replay.start(vector.configuration)
    for step in steps:
        simulated.take(step)
        if isinstance(step.action, Start):
            if not step.action.fails:
                await replay.start(step.action.configuration)
            continue
        said, fails = await replay.take(step), getattr(step.action, "fails", False)
        if fails is not bool(said) or getattr(step.action, "error", "").lower() not in said.lower():
            differences.append(f"line {step.line}: {said or 'nothing is refused'}")
        here, there = replay.placed(), simulated.seen().placed
        differing = [name for name in {**here, **there} if here.get(name) != there.get(name)]
        differences += [f"line {step.line}: {name} is {here.get(name)}, not {there.get(name)}" for name in differing]
    return differences


@pytest.mark.parametrize("front", FRONTS)
async def test_vectors(tmp_path: Path, shared_dir: Path, front: str) -> None:
    """Each step of each case leaves everybody where the simulation does, and refuses whom that does."""
    files = (shared_dir / "scenarios/crirm-vectors.yaml", PEERS)
    played = [each for file in files for each in runs(load(file)) if can_be_played(each[0])]
    wrong = list[str]()
    for number, (vector, rules) in enumerate(played):
        assert vector.topology is not None
        (folder := tmp_path / f"{number}").mkdir()
        async with AsyncExitStack() as stack:
            replay = Replay(FRONTS[front], folder, vector.topology, rules, stack)
            wrong += [f"{vector.id} {rules}: {text}" for text in await play(vector, rules, replay)]
    assert not wrong, "\n".join(wrong)
    assert len(played) >= LEAST
