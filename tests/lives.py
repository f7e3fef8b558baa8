"""Lives of containers on a real node, as tables: what happens, step by step, and where everybody is after it.

A life is played on a criproxy between a small kubelet and a real runtime: `tests/e2e` has them on this machine,
`lab/vm` on those with several NUMA nodes. What the kernel says is what counts; criproxy is asked only whether
it is at rest, so that no later update can change what was seen.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from criproxy.cli.client import ask
from criproxy.cri import api_pb2 as api
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.resources import DEFAULT_PERIOD_US, milli_to_quota, milli_to_shares
from lab.containerd.containerd import IMAGE
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.daemons import Serve

MIB = 1 << 20
NOTHING: Mapping[str, str] = {}

Places = Mapping[str, str]
"""Pod → CPUs of its container, such as ``0-3``; as ``0-3 m1`` also the NUMA nodes of its memory."""


def guaranteed(name: str, cpu_milli: int, memory_mib: int = 64, *, asks: Mapping[str, str] = NOTHING) -> PodSpec:
    """A Guaranteed pod of one container; *asks* are annotations of ours, by key."""
    spec = ContainerSpec("c0", IMAGE, cpu_limit_milli=cpu_milli, memory_limit_bytes=memory_mib * MIB)
    return PodSpec(name, (spec,), annotations=_ours(asks))


def burstable(name: str, cpu_milli: int, *, namespace: str = "default", asks: Mapping[str, str] = NOTHING) -> PodSpec:
    """A Burstable pod of one container that has a memory limit and no CPU limit."""
    spec = ContainerSpec("c0", IMAGE, cpu_request_milli=cpu_milli, memory_limit_bytes=64 * MIB)
    return PodSpec(name, (spec,), namespace, annotations=_ours(asks))


def _ours(annotations: Mapping[str, str]) -> dict[str, str]:
    return {f"{key}.criproxy.io/pod": value for key, value in annotations.items()}


@dataclass(frozen=True, slots=True)
class Runs:
    """A pod comes."""

    pod: PodSpec


@dataclass(frozen=True, slots=True)
class Resized:
    """The kubelet gives the container of a pod another CPU request, and limit if it has one."""

    pod: str
    cpu_milli: int


@dataclass(frozen=True, slots=True)
class Ends:
    """A pod is stopped and removed."""

    pod: str


@dataclass(frozen=True, slots=True)
class Released:
    """What ``criproxy release`` does, or with *undo* its end."""

    undo: bool = False


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The policy file says something else."""

    policy: str


Action = Runs | Resized | Ends | Released | Reloaded
Step = tuple[Action, Places]


class Running(Protocol):
    """A running container, alone in its pod."""

    @property
    def container_id(self) -> str:
        """The runtime's."""
        ...


R = TypeVar("R", bound=Running)


class Stage(Protocol[R]):
    """What a life is played on."""

    serve: Serve
    kubelet: MiniKubelet

    async def run(self, pod: PodSpec) -> R:
        """Run a pod of one container."""
        ...

    async def remove(self, one: R) -> None:
        """Stop and remove its pod."""
        ...

    async def kernel_sets(self, one: R) -> tuple[CpuSet, CpuSet]:
        """The CPUs and NUMA nodes in force for it."""
        ...


@dataclass(slots=True)
class Life(Generic[R]):
    """The containers of one life, as far as it has come."""

    stage: Stage[R]
    limit_s: float
    """What a step may take."""
    running: dict[str, R] = field(default_factory=dict)
    """By pod."""
    _specs: dict[str, ContainerSpec] = field(default_factory=dict)

    async def play(self, *steps: Step) -> None:
        """Take the steps; AssertionError at the first one after which somebody is not where the table says."""
        for number, (action, places) in enumerate(steps, 1):
            step = f"step {number} ({type(action).__name__})"
            await self._take(action)
            if isinstance(action, Runs):  # from its first moment on
                first = {action.pod.name: places[action.pod.name]}
                assert (seen := await self._seen(first)) == first, f"{step}: should start on {first}, not on {seen}"
            await self._settles(places, step)

    async def _take(self, action: Action) -> None:
        match action:
            case Runs(pod):
                self.running[pod.name] = await self.stage.run(pod)
                self._specs[pod.name] = pod.containers[0]
            case Resized(pod, cpu_milli):
                linux = _size(self._specs[pod], cpu_milli)
                await self.stage.kubelet.update(self.running[pod].container_id, linux)
            case Ends(pod):
                await self.stage.remove(self.running.pop(pod))
            case Released(undo):
                await self._ask("release", {"undo": undo})
            case Reloaded(policy):
                await self.stage.serve.reload(policy)

    async def _settles(self, places: Places, step: str) -> None:
        """Wait until everybody is where *places* say, and criproxy has nothing more to do."""
        assert places.keys() == self.running.keys(), f"{step}: the table must tell of {sorted(self.running)}"
        seen: Places = {}
        unrest: list[str] = []
        try:
            async with asyncio.timeout(self.limit_s):
                while (seen := await self._seen(places)) != places or (unrest := await self._unrest()):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)  # the kernel tells nobody
        except TimeoutError:
            raise AssertionError(f"{step}: should be {places}, are {seen}; {unrest}") from None

    async def _seen(self, places: Places) -> Places:
        """Where those in *places* are, in the words of these."""
        found: dict[str, str] = {}
        for name, text in places.items():
            cpus, mems = await self.stage.kernel_sets(self.running[name])
            found[name] = format_cpuset(cpus) + (f" m{format_cpuset(mems)}" if "m" in text else "")
        return found

    async def _unrest(self) -> list[str]:
        """What criproxy finds wrong, except that a node is released, and what it has still to do."""
        answer = await self._ask("status", {"check": True})
        wrong = [text for text in answer["problems"] if not text.startswith("the node is released")]
        return [*wrong, *answer["under_way"]]

    async def _ask(self, command: str, arguments: Mapping[str, bool]) -> dict[str, list[str]]:
        socket = str(self.stage.serve.control)
        answer: dict[str, list[str]] = await asyncio.to_thread(ask, socket, command, arguments, self.limit_s)
        return answer


def _size(spec: ContainerSpec, cpu_milli: int) -> api.LinuxContainerResources:
    """What the kubelet sends for the CPU half of an in-place resize."""
    limit_milli = cpu_milli if spec.cpu_limit_milli else 0
    return api.LinuxContainerResources(
        cpu_shares=milli_to_shares(cpu_milli), cpu_quota=milli_to_quota(limit_milli), cpu_period=DEFAULT_PERIOD_US
    )
