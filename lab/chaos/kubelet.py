"""Our kubelets: clients that say who they are, and pods."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from google.protobuf.message import Message

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import Reply, RuntimeCallError, RuntimeClient
from criproxy.errors import StatusCode
from criproxy.model.resources import DEFAULT_PERIOD_US, milli_to_quota, milli_to_shares
from criproxy.wire.client import Channel
from lab.chaos.journal import Journal
from lab.chaos.nodes import Node
from lab.containerd.containerd import left_task
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec

_REMOVE_AGAIN_S = 0.5
_FOR_EVER = 8
"""So many refusals are no race any more."""
CALL_TIMEOUT_S = 20.0
UNKNOWN = frozenset({StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED, StatusCode.INTERNAL})
"""Codes after which nobody knows what the runtime has done."""
_MEMORY_BYTES = 32 << 20
_numbers = itertools.count(1)


class Caller(RuntimeClient):
    """A client with a connection of its own, whose user agent begins with its *name*."""

    def __init__(self, endpoint: str, name: str) -> None:
        super().__init__(endpoint)
        self.name = name
        self._channel = Channel(endpoint.removeprefix("unix://"), name=name)

    async def call(self, name: str, request: Message, reply: type[Reply], timeout_s: float | None = None) -> Reply:
        """As its base class does it; none waits longer than `CALL_TIMEOUT_S`."""
        return await super().call(name, request, reply, min(timeout_s or CALL_TIMEOUT_S, CALL_TIMEOUT_S))


@dataclass(slots=True, eq=False)
class Member:
    """A container of a pod: what it asks for, and what our kubelet knows of it."""

    spec: ContainerSpec
    id: str = ""
    attempt: int = 0
    state: int = api.CONTAINER_UNKNOWN
    resizing: bool = False
    """A resize of unknown outcome."""


@dataclass(slots=True, eq=False)
class Pod:
    """A pod of ours. The CPUs that its containers own are those of the largest one: the others are init containers."""

    spec: PodSpec
    members: list[Member]
    sandbox: str = ""
    doubtful: bool = False
    """A call about it ended without an answer: its state has to be asked for."""
    busy: bool = False
    """Somebody works on it."""

    @property
    def owns(self) -> int:
        """How many CPUs it may own."""
        return max(owned(self.spec, member.spec) for member in self.members)

    @property
    def running(self) -> list[Member]:
        """Its containers that run, as far as we know."""
        return [member for member in self.members if member.id and member.state == api.CONTAINER_RUNNING]


def owned(pod: PodSpec, spec: ContainerSpec) -> int:
    """How many CPUs of its own a container shall have under the policy static."""
    whole, rest = divmod(spec.cpu_limit_milli, 1000)
    return whole if pod.qos == "Guaranteed" and not rest else 0


def guaranteed(milli: int, init: int = 0, *, exits: bool = False) -> Pod:
    """A Guaranteed pod; *init* containers that ask for as much go first and, where there are processes, exit."""
    command = ("true",) if exits else ()
    specs = [_whole(f"i{number}", milli, command) for number in range(init)]
    return _pod([*specs, _whole("main", milli)])


def _whole(name: str, milli: int, command: tuple[str, ...] = ()) -> ContainerSpec:
    return ContainerSpec(name, IMAGE, command, cpu_limit_milli=milli, memory_limit_bytes=_MEMORY_BYTES)


def burstable() -> Pod:
    """A pod that asks for a part of a CPU."""
    return _pod([ContainerSpec("main", IMAGE, cpu_request_milli=100, memory_request_bytes=_MEMORY_BYTES)])


def best_effort() -> Pod:
    """A pod that asks for nothing."""
    return _pod([ContainerSpec("main", IMAGE)])


def _pod(specs: Sequence[ContainerSpec]) -> Pod:
    return Pod(PodSpec(f"p{next(_numbers)}", tuple(specs)), [Member(spec) for spec in specs])


def replica(pod: Pod) -> Pod:
    """Another pod that asks for the same."""
    return _pod([member.spec for member in pod.members])


def title(pod: Pod, member: Member) -> str:
    """How the journal calls a container."""
    return f"{pod.spec.name}/{member.spec.name}"


@dataclass(slots=True)
class Kubelet:
    """One kubelet with a connection of its own.

    A call that fails leaves its pod doubtful and raises RuntimeCallError.
    """

    node: Node
    client: Caller
    journal: Journal
    _mini: MiniKubelet = field(init=False)

    def __post_init__(self) -> None:
        self._mini = MiniKubelet(self.client, self.node.cgroups)

    @contextmanager
    def _calling(self, pod: Pod) -> Iterator[None]:
        pod.doubtful = True
        yield
        pod.doubtful = False

    async def sandbox(self, pod: Pod) -> None:
        """Run the pod's sandbox."""
        with self._calling(pod):
            pod.sandbox = await self._mini.run_sandbox(pod.spec)
            self.journal.knows(pod.sandbox, "")

    async def create(self, pod: Pod, member: Member, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Create a container."""
        self.journal.wants(title(pod, member), [owned(pod.spec, member.spec)])
        with self._calling(pod):
            member.id = await self._mini.create(pod.spec, pod.sandbox, member.spec, member.attempt, timeout_s=timeout_s)
            member.state = api.CONTAINER_CREATED
            self.journal.knows(member.id, title(pod, member))

    async def start(self, pod: Pod, member: Member) -> None:
        """Start a created container."""
        with self._calling(pod):
            await self._mini.start(member.id)
            member.state = api.CONTAINER_RUNNING

    async def stop(self, pod: Pod, member: Member) -> None:
        """Stop a container."""
        with self._calling(pod):
            await self._mini.stop(member.id)
            member.state = api.CONTAINER_EXITED

    async def remove(self, pod: Pod, member: Member) -> None:
        """Remove a container."""
        with self._calling(pod):
            await self._mini.remove(member.id)
            member.id, member.state = "", api.CONTAINER_UNKNOWN

    async def remove_pod(self, pod: Pod) -> None:
        """Stop and remove a pod with all that is in it.

        As the kubelet, it tries again where containerd refuses because a container is just coming up which the stop did
        not see. Where it refuses for ever, as `left_task` tells, the task is ended as an operator would.
        """
        if not pod.sandbox:
            return
        with self._calling(pod):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                for tries in itertools.count(1):
                    try:
                        await self._mini.remove_pod(pod.sandbox)
                        break
                    except RuntimeCallError as error:
                        if not (left := left_task(error.details)):
                            raise
                    if tries % _FOR_EVER == 0:
                        await self.node.end_left(left)
                    await asyncio.sleep(_REMOVE_AGAIN_S)
            pod.sandbox = ""

    async def end_left(self) -> None:
        """End all that runs though the runtime calls it exited: its CPUs are no others' until then, and it is no pod's.

        A runtime that cannot be asked has nothing.
        """
        with suppress(RuntimeCallError):
            await self.node.end_left()

    async def resize(self, pod: Pod, member: Member, milli: int) -> None:
        """Resize the one container of a Guaranteed pod."""
        old = owned(pod.spec, member.spec)
        member.spec = _whole("main", milli)
        new = owned(pod.spec, member.spec)
        self.journal.wants(title(pod, member), sorted({old, new}), unsettled=True)
        sizes = api.LinuxContainerResources(
            cpu_shares=milli_to_shares(milli), cpu_quota=milli_to_quota(milli), cpu_period=DEFAULT_PERIOD_US
        )
        member.resizing = True
        with self._calling(pod):
            await self._mini.update(member.id, sizes)
            self.journal.wants(title(pod, member), [new], unsettled=True)
            member.resizing = False
