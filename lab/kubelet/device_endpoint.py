"""A device plugin as the kubelet's device manager knows it: its connection, its devices, and what containers have."""

import asyncio
import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from criproxy.cri import api_pb2 as cri
from criproxy.cri import deviceplugin_pb2 as api

LARGEST_BYTES = 4 << 20
"""Of a message that it takes: the default of grpc-go."""
CONNECT_S = 60.0
"""Longer than the kubelet's ten seconds, so that a test fails where the kubelet would have to wait."""
_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", LARGEST_BYTES),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 50),
)


class AdmissionError(Exception):
    """A pod that is not admitted: its reason is UnexpectedAdmissionError, the text its message."""


@dataclass(slots=True, eq=False)
class Endpoint:
    """One plugin that was registered for a resource."""

    resource: str
    options: api.DevicePluginOptions
    channel: grpc.aio.Channel | None
    """None: of a plugin before the kubelet's restart."""
    lists: int = 0
    """Messages of its stream so far."""
    stopped: bool = False
    following: "asyncio.Task[None] | None" = None

    async def call(self, name: str, request: Message, reply: type[Message], *, dials: bool = False) -> Any:  # noqa: ANN401 (the caller knows)
        """Call one method of the plugin; where it *dials*, it waits for a socket that is not there."""
        assert self.channel is not None
        method: Any = self.channel.unary_unary(
            f"/v1beta1.DevicePlugin/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply.FromString,
        )
        return await method(request, timeout=CONNECT_S, wait_for_ready=dials)

    async def close(self) -> None:
        """End the connection, if there is one."""
        if self.channel is not None:
            await self.channel.close()


def dial(resource: str, socket: Path) -> Endpoint:
    """The plugin of *resource* at *socket*: connected by the first call."""
    channel = grpc.aio.insecure_channel(f"unix://{socket}", options=_OPTIONS)
    return Endpoint(resource, api.DevicePluginOptions(), channel)


@dataclass(frozen=True, slots=True)
class Given:
    """What one container has of one resource."""

    ids: tuple[str, ...]
    response: bytes
    """The plugin's answer, a ContainerAllocateResponse."""

    @property
    def answer(self) -> api.ContainerAllocateResponse:
        """The plugin's answer."""
        return api.ContainerAllocateResponse.FromString(self.response)


@dataclass(slots=True)
class Devices:
    """What one resource has, by id: whether it is healthy, and its NUMA nodes."""

    healthy: set[str] = field(default_factory=set)
    unhealthy: set[str] = field(default_factory=set)
    numa_nodes: dict[str, tuple[int, ...]] = field(default_factory=dict)


Key = tuple[str, str]
"""UID of a pod, and name of a container in it."""


def add(config: cri.ContainerConfig, given: Iterable[Given]) -> None:
    """Write the answers of plugins into a create that has nothing of the pod's own yet.

    The kubelet puts them before what the pod says, and its own annotations outweigh those of plugins.
    """
    own = dict(config.annotations)
    for answer in [each.answer for each in given]:
        for key, value in answer.envs.items():
            config.envs.add(key=key, value=value.encode())
        for mount in answer.mounts:
            config.mounts.add(container_path=mount.container_path, host_path=mount.host_path, readonly=mount.read_only)
        for node in answer.devices:
            config.devices.add(
                container_path=node.container_path, host_path=node.host_path, permissions=node.permissions
            )
        config.annotations.update(answer.annotations)
        for name in answer.cdi_devices:
            config.CDI_devices.add(name=name.name)
    config.annotations.update(own)


_NO_NODE = -1
"""What stands for the NUMA node of a device whose plugin names none."""


def write_checkpoint(path: Path, given: Mapping[Key, Mapping[str, Given]], devices: Mapping[str, Devices]) -> None:
    """Replace the file.

    Args:
        path: of the file.
        given: what containers have, by resource.
        devices: what plugins offer, by resource.
    """
    entries = [
        {
            "PodUID": pod_uid,
            "ContainerName": container,
            "ResourceName": resource,
            "DeviceIDs": _by_node(devices.get(resource, Devices()), each.ids),
            "AllocResp": base64.b64encode(each.response).decode(),
        }
        for (pod_uid, container), resources in given.items()
        for resource, each in resources.items()
    ]
    replace_checkpoint(path, entries, {name: sorted(each.healthy) for name, each in devices.items()})


def replace_checkpoint(
    path: Path, entries: Sequence[Mapping[str, object]], registered: Mapping[str, Sequence[str]]
) -> None:
    """Replace the file as the kubelet does, with a rename."""
    text = json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}, "Checksum": 1})
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text)
    temporary.replace(path)


def read_checkpoint(path: Path) -> tuple[dict[Key, dict[str, Given]], list[str]]:
    """What containers have, by resource, and the resources that had plugins; nothing where there is no file."""
    given: dict[Key, dict[str, Given]] = {}
    if not path.exists():
        return given, []
    data = json.loads(path.read_text())["Data"]
    for entry in data["PodDeviceEntries"]:
        ids = tuple(dict.fromkeys(each for those in entry["DeviceIDs"].values() for each in those))
        one = Given(ids, base64.b64decode(entry["AllocResp"]))
        given.setdefault((entry["PodUID"], entry["ContainerName"]), {})[entry["ResourceName"]] = one
    return given, list(data["RegisteredDevices"])


def _by_node(devices: Devices, ids: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in ids:
        for node in devices.numa_nodes.get(each) or (_NO_NODE,):
            found.setdefault(str(node), []).append(each)
    return found
