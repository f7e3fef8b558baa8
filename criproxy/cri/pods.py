"""The client of the kubelet's Pods API: a pod's specification as the API server has it, where the kubelet serves it.

CRI shows the memory request of a Burstable container only roughly, and not which containers are init containers or
sidecars. The API is alpha in Kubernetes 1.36, behind the feature gate PodsAPI; without it, nothing is known.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from criproxy.errors import StatusCode
from criproxy.wire.client import CallError, Channel

if TYPE_CHECKING:
    from criproxy.cri import core_pod_pb2 as core

SOCKET = Path("var/lib/kubelet/pods-api/pods-api.sock")
"""Below the host's root."""
WAIT_S = 0.05
"""How long a create waits for an answer: the kubelet has it in memory."""
ANSWER_S = 1.0
"""When a kubelet that does not answer counts as hanging."""
FRESH_S = 5.0
"""How long an answer is used without asking again: a resize changes the requests of a pod."""
ABSENT_S, SILENT_S, UNKNOWN_S = 5.0, 30.0, 300.0
"""Pauses before the next question: without a socket, after a kubelet that hangs, and after one without the API."""
LARGEST_POD_BYTES = 4 << 20
MAX_PODS = 2_000
"""Pods that are remembered: the most recent ones."""
INIT, SIDECAR, MAIN, EPHEMERAL = "init", "sidecar", "main", "ephemeral"
"""The roles of containers."""
_METHOD = "/v1alpha1.Pods/GetPod"
_QUANTITY = re.compile(r"(\+?[0-9]+\.?[0-9]*|\+?\.[0-9]+)(?:[eE]([+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i))?")
_POWERS = {suffix: power for power, suffix in zip((-3, -2, -1, 1, 2, 3, 4, 5, 6), "numkMGTPE", strict=True)}
"""Of 1000, by suffix."""
_LARGEST_BYTES = 1 << 63


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """What a pod's specification says about one of its containers."""

    role: str
    memory_request_bytes: int | None
    """0 without a request; None if it cannot be read."""


Specs = Mapping[str, ContainerSpec]
"""The containers of one pod by name."""


@dataclass(slots=True)
class Pods:
    """What the kubelet knows about the pods of this node. Its methods do not fail.

    Args:
        socket: of the kubelet.
    """

    socket: Path
    _channel: Channel = field(init=False)
    _specs: dict[str, tuple[float, Specs]] = field(default_factory=dict)
    """By UID: when the kubelet was asked, and its answer."""
    _asking: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    """By UID."""
    _not_before_s: float = 0.0

    def __post_init__(self) -> None:
        self._channel = Channel(str(self.socket.absolute()), LARGEST_POD_BYTES)

    def prefetch(self, uid: str) -> "asyncio.Task[None] | None":
        """Begin to ask about a pod; None if its answer is fresh, or if the kubelet is not to be asked now."""
        now_s = asyncio.get_running_loop().time()
        asked_s, _ = self._specs.get(uid, (-FRESH_S, {}))
        if (task := self._asking.get(uid)) is None and uid and now_s >= max(self._not_before_s, asked_s + FRESH_S):
            task = self._asking[uid] = asyncio.create_task(self._ask(uid), name=f"ask the kubelet about pod {uid}")
            task.add_done_callback(lambda _: self._asking.pop(uid, None))
        return task

    async def container(self, uid: str, name: str) -> ContainerSpec | None:
        """Return what the specification of the pod says about a container; None if that is unknown after `WAIT_S`."""
        if task := self.prefetch(uid):
            await asyncio.wait({task}, timeout=WAIT_S)
        _, specs = self._specs.get(uid, (0.0, {}))
        return specs.get(name)

    async def close(self) -> None:
        """End all questions and the connection."""
        self._not_before_s = float("inf")
        tasks = set(self._asking.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=ANSWER_S)
        self._channel.close()

    async def _ask(self, uid: str) -> None:
        from criproxy.cri import pods_pb2 as api

        now_s = asyncio.get_running_loop().time()
        try:
            request = api.GetPodRequest(podUID=uid).SerializeToString()
            reply = api.GetPodResponse.FromString(await self._channel.unary(_METHOD, request, ANSWER_S))
            specs = read(uid, reply.pod)
        except CallError as error:
            self._not_before_s = max(self._not_before_s, now_s + _pause_s(error))
            if error.is_own:
                self._channel.renew()
        except (DecodeError, ValueError):  # another message than that of the API
            self._not_before_s = max(self._not_before_s, now_s + UNKNOWN_S)
        else:
            self._specs.pop(uid, None)
            self._specs[uid] = now_s, specs
            if len(self._specs) > MAX_PODS:
                del self._specs[next(iter(self._specs))]


def _pause_s(error: CallError) -> float:
    """Return how long not to ask the kubelet after *error*."""
    if error.code is StatusCode.NOT_FOUND:  # it has no such pod, but knows others
        return 0.0
    if error.is_own:
        return SILENT_S
    return UNKNOWN_S if error.code is StatusCode.UNIMPLEMENTED else ABSENT_S


def read(uid: str, pod: bytes) -> Specs:
    """Return the containers of a *pod* of Kubernetes' core API, as protobuf.

    Raises:
        DecodeError: it is no pod.
        ValueError: it is another one than *uid*.
    """
    from criproxy.cri import core_pod_pb2 as core

    found = core.Pod.FromString(pod)
    if found.metadata.uid != uid:
        raise ValueError(f"asked about pod {uid}, but the answer is about {found.metadata.uid!r}")
    return dict(_containers(found.spec))


def _containers(spec: "core.PodSpec") -> Iterator[tuple[str, ContainerSpec]]:
    groups: Iterable[tuple[str, Iterable[core.Container]]] = (
        (MAIN, spec.containers),
        (INIT, spec.initContainers),
        (EPHEMERAL, (each.ephemeralContainerCommon for each in spec.ephemeralContainers)),
    )
    for group, containers in groups:
        for each in containers:
            role = SIDECAR if group == INIT and each.restartPolicy == "Always" else group
            asked, memory_bytes = each.resources.requests, None
            with suppress(ValueError):
                memory_bytes = quantity(asked["memory"].string) if "memory" in asked else 0
            yield each.name, ContainerSpec(role, memory_bytes)


def quantity(text: str) -> int:
    """Return an amount of bytes, such as ``128Mi``, ``1.5G`` or ``1e9``, in Kubernetes' notation; parts are rounded up.

    Raises:
        ValueError: it is none, is negative, or is more than any machine has.
    """
    found = _QUANTITY.fullmatch(text)
    if not found:
        raise ValueError(f"{text[:40]!r} is no quantity")
    number, exponent, suffix = found.groups()
    amount = (Decimal(number) * _factor(exponent, suffix or "")).to_integral_value(ROUND_CEILING)
    if amount >= _LARGEST_BYTES:
        raise ValueError(f"{text[:40]!r} is more than any machine has")
    return int(amount)


def _factor(exponent: str | None, suffix: str) -> Decimal:
    if exponent is not None:
        return Decimal(10) ** int(exponent)
    if suffix.endswith("i"):
        return Decimal(1024) ** ("KMGTPE".index(suffix[0]) + 1)
    return Decimal(1000) ** _POWERS.get(suffix, 0)
