"""The client of the kubelet's podresources API, which reports what is allocated to a pod.

The kubelet creates its socket again whenever it starts. A call waits for the connection within its deadline; without a
socket, it fails at once.
"""

import asyncio
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from criproxy.cri import podresources_pb2 as api
from criproxy.errors import CriproxyError, StatusCode
from criproxy.host.patience import Hangs, Patience
from criproxy.wire.client import CallError, Channel

Reply = TypeVar("Reply", bound=Message)
Devices = Mapping[str, Mapping[str, tuple[str, ...]]]
"""The ids allocated to one pod, by container and resource. For missing containers, nothing is known."""

STAT_TIMEOUT_S = 1.0
LARGEST_REPLY_BYTES = 16 << 20
"""The limit of the kubelet's own clients: a list has all pods of the node."""
_SERVICE = "/v1.PodResourcesLister"
_PAUSE_S = 0.05
"""Between attempts to connect: a kubelet that restarts is back within seconds, and its first creates need it."""


class PodresourcesError(CriproxyError):
    """The kubelet gave no answer; `code` is the gRPC status, UNAVAILABLE if there is no socket."""

    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class PodresourcesClient:
    """One connection to one kubelet; safe to use from many tasks of one event loop.

    Args:
        socket: such as /var/lib/kubelet/pod-resources/kubelet.sock.
        patience: limits the wait for the file system, which may hang.
        stat_s: how long a stat of the socket may take.
    """

    def __init__(self, socket: Path, patience: Patience | None = None, stat_s: float = STAT_TIMEOUT_S) -> None:
        self.socket = socket
        self._stat_s = stat_s
        self._patience = patience or Patience()
        self._channel = Channel(str(socket.absolute()), LARGEST_REPLY_BYTES)
        self._made: tuple[int, int] | None = None
        """The last known socket, as device and inode: a restarted kubelet creates another one."""
        self._only_lists = False
        """Whether this kubelet does not have Get, or has it disabled."""

    async def pods(self, namespace: str, name: str, timeout_s: float) -> list[Devices]:
        """Return the ids that are allocated to the pods of this name.

        Empty if the kubelet has no such pod; several if it has several, such as one that ends and its successor.

        Raises:
            PodresourcesError: the kubelet gave no answer.
        """
        await self._look_for_kubelet()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        if not self._only_lists:
            try:
                return await self._get(namespace, name, timeout_s)
            except PodresourcesError as error:
                if error.code is StatusCode.NOT_FOUND:
                    return []
                if error.code in (StatusCode.DEADLINE_EXCEEDED, StatusCode.UNAVAILABLE):
                    raise
                # It fails as long as this kubelet runs; a disabled feature gate is only recognised by the text.
                self._only_lists = error.code is StatusCode.UNIMPLEMENTED or "disabled" in str(error)
        listed = await self._list(deadline_s - loop.time())
        return [_devices(pod) for pod in listed if (pod.namespace, pod.name) == (namespace, name)]

    async def in_use(self, timeout_s: float) -> Mapping[str, frozenset[str]]:
        """Return the ids that are allocated to containers of all pods, by resource.

        Raises:
            PodresourcesError: the kubelet gave no answer.
        """
        await self._look_for_kubelet()
        ids: dict[str, set[str]] = {}
        for pod in await self._list(timeout_s):
            for container in pod.containers:
                for entry in container.devices:
                    ids.setdefault(entry.resource_name, set()).update(entry.device_ids)
        return {resource: frozenset(those) for resource, those in ids.items()}

    async def close(self) -> None:
        """Drop the connection; no call may be in flight."""
        self._channel.close()

    async def _list(self, timeout_s: float) -> Iterable[api.PodResources]:
        request = api.ListPodResourcesRequest()
        reply = await self._call("List", request, api.ListPodResourcesResponse, timeout_s)
        if not reply.pod_resources and len(UnknownFieldSet(reply)):
            raise PodresourcesError(StatusCode.INTERNAL, "List: the reply cannot be read: it is another message")
        return reply.pod_resources

    async def _get(self, namespace: str, name: str, timeout_s: float) -> list[Devices]:
        request = api.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        reply = await self._call("Get", request, api.GetPodResourcesResponse, timeout_s)
        pod = reply.pod_resources
        if (pod.namespace, pod.name) != (namespace, name):  # unknown pods are NOT_FOUND
            raise PodresourcesError(StatusCode.INTERNAL, "Get: the reply cannot be read: it is not about that pod")
        return [_devices(pod)]

    async def _look_for_kubelet(self) -> None:
        """Look whether there is a socket, and forget the features of an earlier kubelet."""
        try:
            found = await self._patience.wait(str(self.socket), self.socket.stat, self._stat_s)
        except OSError as error:
            raise PodresourcesError(StatusCode.UNAVAILABLE, f"{self.socket}: {error.strerror}") from error
        except Hangs as error:
            raise PodresourcesError(StatusCode.DEADLINE_EXCEEDED, str(error)) from error
        if not stat.S_ISSOCK(found.st_mode):
            raise PodresourcesError(StatusCode.UNAVAILABLE, f"{self.socket}: is not a socket")
        if (made := (found.st_ino, found.st_ctime_ns)) != self._made:
            self._made, self._only_lists = made, False

    async def _call(self, name: str, request: Message, reply: type[Reply], timeout_s: float) -> Reply:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            left_s = max(deadline_s - loop.time(), 0.001)
            try:
                answer = await self._channel.unary(f"{_SERVICE}/{name}", request.SerializeToString(), left_s)
                return reply.FromString(answer)
            except DecodeError as error:
                raise PodresourcesError(StatusCode.INTERNAL, f"{name}: the reply cannot be read: {error}") from error
            except CallError as error:
                if error.cause is None or left_s <= _PAUSE_S:
                    raise PodresourcesError(error.code, f"{name}: {error}") from error
            await asyncio.sleep(_PAUSE_S)  # nobody listens yet


def _devices(pod: api.PodResources) -> Devices:
    return {container.name: _union(container.devices) for container in pod.containers}


def _union(entries: Iterable[api.ContainerDevices]) -> Mapping[str, tuple[str, ...]]:
    """Return ids by resource: there is an entry for each NUMA node, or even for each device."""
    ids: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        ids[entry.resource_name] = tuple(dict.fromkeys((*ids.get(entry.resource_name, ()), *entry.device_ids)))
    return ids
