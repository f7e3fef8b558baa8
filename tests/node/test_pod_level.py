"""Pod-level resources as the kubelet sends them: the containers of a pod together count as much as the pod requests."""

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.resources import milli_to_quota, milli_to_shares
from criproxy.placement.invariants import violations
from criproxy.placement.policies import BUILTIN
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import machine
from lab.emulator.runtime import IMAGE, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.node.world import FAST, GIB, World, owner, problems, refusal, situation

OPTIONS: Mapping[str, Mapping[str, object]] = {
    "static": {"reservedCpus": "0"},
    "topology-aware": {"reservedCpus": "0"},
    "balloons": {"balloonTypes": [{"name": "batch", "namespaces": ["default"]}]},
    "pools": {"reservedCpus": "0", "pools": [{"name": "rt", "cpuLists": [{"cpuset": "5-7"}]}]},
}
EXCLUSIVE = ("static", "topology-aware")


def policy_of(name: str) -> Policy:
    """The policy *name*, for eight CPUs of which CPU 0 is reserved."""
    entry = BUILTIN[name]
    return entry.build(entry.options.model_validate(OPTIONS[name]))


def pod_of(*containers: ContainerSpec, request: int = 0, limit: int = 0, memory: int = GIB) -> PodSpec:
    """A pod with pod-level resources: Guaranteed if it has only a CPU limit."""
    guaranteed = memory if limit and not request else 0
    return PodSpec("whole", containers, cpu_request_milli=request, cpu_limit_milli=limit, memory_limit_bytes=guaranteed)


def bare(*names: str) -> tuple[ContainerSpec, ...]:
    """Containers without a size of their own."""
    return tuple(ContainerSpec(name, IMAGE) for name in names)


def sized(name: str, cpu_milli: int) -> ContainerSpec:
    """A container with a size of its own, with equal requests and limits."""
    return ContainerSpec(name, IMAGE, cpu_limit_milli=cpu_milli, memory_limit_bytes=GIB // 4)


async def resize_pod(world: World, sandbox_id: str, cpu_milli: int) -> None:
    """The kubelet's call about the whole pod, which it takes for done whatever the runtime answers."""
    resources = api.LinuxContainerResources(
        cpu_shares=milli_to_shares(cpu_milli), cpu_quota=milli_to_quota(cpu_milli), cpu_period=100_000
    )
    request = api.UpdatePodSandboxResourcesRequest(pod_sandbox_id=sandbox_id, resources=resources)
    with suppress(RuntimeCallError):
        await world.client.call("UpdatePodSandboxResources", request, api.UpdatePodSandboxResourcesResponse, 10.0)


@dataclass
class Scene:
    """A node with one such pod."""

    world: World
    sandbox: str = ""
    ids: Mapping[str, str] = ()  # type: ignore[assignment]

    async def run(self, pod: PodSpec) -> None:
        """Run *pod*."""
        self.sandbox, ids = await self.world.kubelet.run_pod(pod)
        self.ids = ids
        await self.world.rested()

    async def resize(self, before: PodSpec, after: PodSpec) -> None:
        """Resize the pod in place, as the kubelet does."""
        await self.world.kubelet.resize_pod(before, after, self.sandbox, self.ids)
        await self.world.rested()

    def counted_milli(self) -> int:
        """What the containers of the pod count together."""
        containers = self.world.controller.node.containers
        return sum(containers[key].cpu_request_milli.low for key in self.ids.values())

    def owned(self) -> dict[str, int]:
        """By container, the number of its exclusive CPUs."""
        grants = self.world.controller.node.grants
        return {name: len(grants[key].exclusive) for name, key in self.ids.items()}

    def pod_owns(self) -> int:
        """The number of exclusive CPUs of the whole pod."""
        grants = self.world.controller.node.grants
        return len(frozenset().union(*(grants[key].exclusive for key in self.ids.values())))

    def cpus(self, name: str) -> str:
        """The CPUs in the cgroup of a container."""
        return self.world.cpus(self.ids[name])

    async def is_well(self) -> None:
        """Wait until nothing is wrong, says ``status --check``; no rule is violated."""
        await self.world.poll(lambda: not any(problems(situation(self.world.controller)).values()))
        assert violations(self.world.controller.node, situation(self.world.controller).reserved) == []

    async def restart(self) -> None:
        """End criproxy, and start it again."""
        await self.world.restart()
        await self.world.until(lambda: self.world.controller.node.grants.keys() >= set(self.ids.values()))
        await self.world.rested()


async def scene_of(tmp_path: Path, policy: str, options: RuntimeOptions | None = None) -> AsyncIterator[Scene]:
    """A node of eight CPUs under *policy*."""
    async with World(tmp_path, options, FAST, policy_of(policy), machine(nodes=1, cores=8, threads=1)) as world:
        yield Scene(world)


@pytest.fixture(params=list(OPTIONS))
async def scene(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """A node under each policy."""
    async for found in scene_of(tmp_path, request.param):
        yield found


@pytest.fixture(params=EXCLUSIVE)
async def exclusive(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """A node under each policy that gives CPUs to one container alone."""
    async for found in scene_of(tmp_path, request.param):
        yield found


@pytest.fixture(params=EXCLUSIVE)
async def refusing(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """The same on a runtime that refuses every update."""
    without = RuntimeOptions(missing=frozenset({"UpdateContainerResources"}))
    async for found in scene_of(tmp_path, request.param, without):
        yield found


SHAPES = [
    pytest.param(pod_of(*bare("a"), limit=2000), 2000, id="guaranteed-one"),
    pytest.param(pod_of(*bare("a", "b"), limit=2000), 2000, id="guaranteed-two"),
    pytest.param(pod_of(*bare("a", "b"), limit=1500), 1500, id="guaranteed-fraction"),
    pytest.param(pod_of(sized("side", 500), *bare("a", "b"), limit=2000), 2000, id="guaranteed-sidecar"),
    pytest.param(pod_of(*bare("a"), sized("own", 1000), *bare("b"), limit=3000), 3000, id="guaranteed-sized"),
    pytest.param(pod_of(*bare("a"), request=200, limit=2000), 200, id="burstable-one"),
    pytest.param(pod_of(*bare("a", "b", "c", "d", "e"), request=200, limit=2000), 200, id="burstable-five"),
    pytest.param(pod_of(sized("own", 100), *bare("a", "b"), request=200, limit=2000), 200, id="burstable-sized"),
    pytest.param(pod_of(*bare("a"), request=1500), 1500, id="no-limit-one"),
    pytest.param(pod_of(*bare("a", "b"), sized("own", 500), request=1500), 1500, id="no-limit-sized"),
]


@pytest.mark.parametrize(("pod", "total_milli"), SHAPES)
async def test_the_containers_of_a_pod_count_as_much_as_the_pod(scene: Scene, pod: PodSpec, total_milli: int) -> None:
    """Neither less nor more, after a restart, a lost database and a reload as well; and nobody moves because of it."""
    await scene.run(pod)
    assert scene.counted_milli() == total_milli
    assert scene.pod_owns() * 1000 <= total_milli
    await scene.is_well()
    had = {name: scene.cpus(name) for name in scene.ids}, scene.owned()

    await scene.restart()
    assert (scene.counted_milli(), {name: scene.cpus(name) for name in scene.ids}) == (total_milli, had[0])

    await scene.world.stop_criproxy()
    rmtree(scene.world._directory / "state")
    await scene.world.start_criproxy()
    await scene.world.until(lambda: scene.world.controller.node.grants.keys() >= set(scene.ids.values()))
    await scene.world.rested()
    assert scene.counted_milli() == total_milli
    assert ({name: scene.cpus(name) for name in scene.ids}, scene.owned()) == had
    await scene.is_well()


async def test_a_create_says_a_newer_total(exclusive: Scene) -> None:
    """The copy of the sandbox's configuration in it may be from after a resize of the pod that nobody told of."""
    sandbox = await exclusive.world.kubelet.run_sandbox(pod_of(*bare("a"), limit=1000))
    pod = pod_of(*bare("a"), limit=2000)
    await exclusive.world.kubelet.create(pod, sandbox, pod.containers[0])

    assert exclusive.world.controller.node.pods[sandbox].cpu_total_milli == 2000


async def test_sized_containers_own_their_cpus_and_the_others_share_the_rest(exclusive: Scene) -> None:
    """As with the kubelet's resource managers for such pods."""
    await exclusive.run(pod_of(*bare("a"), sized("own", 1000), *bare("b"), limit=3000))

    assert exclusive.owned() == {"a": 2, "own": 1, "b": 2}
    assert exclusive.cpus("a") == exclusive.cpus("b")
    assert not parse_cpuset(exclusive.cpus("a")) & parse_cpuset(exclusive.cpus("own"))
    await exclusive.is_well()


@pytest.mark.parametrize("names", ["a", "ab"], ids=["one", "two"])
async def test_a_resize_keeps_and_regains_the_exclusive_cpu(exclusive: Scene, names: str) -> None:
    """A resize of memory alone keeps it; to 500m and back regains it, also if criproxy restarts in between."""
    pod = pod_of(*bare(*names), limit=1000)
    small = replace(pod, cpu_limit_milli=500)
    await exclusive.run(pod)
    assert exclusive.owned() == dict.fromkeys(names, 1)
    had = exclusive.cpus("a")

    more = replace(pod, memory_limit_bytes=2 * GIB)
    await exclusive.resize(pod, more)
    assert (exclusive.owned(), exclusive.cpus("a")) == (dict.fromkeys(names, 1), had)
    await exclusive.is_well()

    await exclusive.resize(pod, small)
    assert exclusive.owned() == dict.fromkeys(names, 0)
    assert exclusive.counted_milli() == 500
    await exclusive.restart()

    await exclusive.resize(small, pod)
    await exclusive.world.poll(lambda: len(exclusive.cpus("a")) == 1)
    assert exclusive.owned() == dict.fromkeys(names, 1)
    assert exclusive.counted_milli() == 1000
    await exclusive.is_well()


async def test_a_resize_of_a_burstable_pod_counts(scene: Scene) -> None:
    """Its request grows and shrinks, and that of its containers together with it: others have the room beside it."""
    pod = pod_of(*bare("a", "b"), request=1000, limit=2000)
    await scene.run(pod)
    for request_milli in (1500, 300):
        after = replace(pod, cpu_request_milli=request_milli)
        await scene.resize(pod, after)
        await scene.world.until(lambda milli=request_milli: scene.counted_milli() == milli)  # type: ignore[misc]
        pod = after
    await scene.world.run(owner("other", 4))
    await scene.is_well()


async def test_a_container_that_crashes_comes_back_to_its_pod(scene: Scene) -> None:
    """Whichever of them ends: the others count for it, and nothing is counted twice when it is back."""
    pod = pod_of(*bare("a", "b"), limit=2000)
    await scene.run(pod)
    for attempt, spec in ((1, pod.containers[0]), (1, pod.containers[1]), (2, pod.containers[0])):
        await scene.world.kubelet.stop(scene.ids[spec.name])
        again = await scene.world.kubelet.create(pod, scene.sandbox, spec, attempt)
        await scene.world.kubelet.start(again)
        scene.ids = {**scene.ids, spec.name: again}
        await scene.world.rested()
        assert scene.counted_milli() == 2000
    await scene.is_well()


async def test_a_resize_without_room_is_refused_and_repeated(exclusive: Scene) -> None:
    """The containers keep what they have, also if one crashes; they get the rest as soon as there is room."""
    pod = pod_of(*bare("a", "b"), limit=2000)
    large = replace(pod, cpu_limit_milli=4000)
    await exclusive.run(pod)
    neighbour = await exclusive.world.run(owner("other", 5))

    await refusal(exclusive.resize(pod, large), "whole")
    await exclusive.world.rested()
    assert (exclusive.owned(), exclusive.counted_milli()) == ({"a": 2, "b": 2}, 2000)

    await exclusive.world.kubelet.stop(neighbour)
    await exclusive.world.kubelet.remove_pod(exclusive.world.controller.node.containers[neighbour].pod)
    await exclusive.resize(large, large)
    await exclusive.world.until(lambda: exclusive.owned() == {"a": 4, "b": 4})
    assert exclusive.counted_milli() == 4000
    await exclusive.is_well()


@pytest.mark.parametrize(("before_milli", "after_milli"), [(2000, 6000), (6000, 2000)], ids=["grows", "shrinks"])
async def test_a_resize_whose_total_was_lost_counts(exclusive: Scene, before_milli: int, after_milli: int) -> None:
    """As when criproxy restarts at that moment: in a Guaranteed pod, the new quota of a container shows the total."""
    await exclusive.run(pod_of(*bare("a", "b"), sized("own", 1000), limit=before_milli))
    linux = api.LinuxContainerResources(cpu_shares=2, cpu_quota=100 * after_milli, cpu_period=100_000)
    for name in "ab":
        await exclusive.world.kubelet.update(exclusive.ids[name], linux)
    await exclusive.restart()

    count = after_milli // 1000
    assert exclusive.owned() == {"a": count - 1, "b": count - 1, "own": 1}
    assert exclusive.counted_milli() == after_milli
    await exclusive.is_well()
    await exclusive.world.run(owner("other", 7 - count))


async def test_a_resize_without_room_whose_total_was_lost_is_refused(exclusive: Scene) -> None:
    """The pod keeps its total, and its containers what they have."""
    await exclusive.run(pod_of(*bare("a", "b"), limit=2000))
    await exclusive.world.run(owner("other", 5))
    linux = api.LinuxContainerResources(cpu_shares=2, cpu_quota=400_000, cpu_period=100_000)

    for name in "ab":
        await refusal(exclusive.world.kubelet.update(exclusive.ids[name], linux), "whole")

    await exclusive.world.rested()
    assert (exclusive.owned(), exclusive.counted_milli()) == ({"a": 2, "b": 2}, 2000)
    assert exclusive.world.controller.node.pods[exclusive.sandbox].cpu_total_milli == 2000
    (sentence,) = problems(situation(exclusive.world.controller))["problems"]
    assert sentence.startswith("the pod default/whole should have 4 CPUs and 1 GiB, but has 2 CPUs and 1 GiB: its ")


async def test_a_resize_that_the_runtime_refuses_and_whose_total_was_lost_is_undone(refusing: Scene) -> None:
    """The pod has its total back, and its containers have what they had."""
    await refusing.run(pod_of(*bare("a", "b"), limit=4000))
    linux = api.LinuxContainerResources(cpu_shares=2, cpu_quota=200_000, cpu_period=100_000)

    await refusal(refusing.world.kubelet.update(refusing.ids["a"], linux))

    await refusing.world.until(lambda: refusing.owned() == {"a": 4, "b": 4})
    assert refusing.world.controller.node.pods[refusing.sandbox].cpu_total_milli == 4000
