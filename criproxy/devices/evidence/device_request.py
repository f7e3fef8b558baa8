"""The part of a CreateContainer request that the rules about devices read: device requests, and the container."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class EnvVar(NamedTuple):
    """An environment variable; values are compared as bytes."""

    name: str
    value: bytes


class DeviceNode(NamedTuple):
    """A device node that the runtime creates in the container."""

    container_path: str
    host_path: str
    permissions: str


class MountPoint(NamedTuple):
    """The paths of a mount; its other fields stay in the message."""

    container_path: str
    host_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """All entries about devices, in the order of the message, including duplicates."""

    envs: tuple[EnvVar, ...] = ()
    """Those variables that the rules may read or change; the message may have very many others."""
    devices: tuple[DeviceNode, ...] = ()
    mounts: tuple[MountPoint, ...] = ()
    cdi: tuple[str, ...] = ()
    """The names of CDI devices, from the field and from annotations."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The annotations of the container, which the kubelet and device plugins set, and users cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """The container, with the properties on which exceptions depend."""

    namespace: str = ""
    images: tuple[str, ...] = ()
    """All names of its image in the message."""
    privileged: bool = False
    runtime: str = ""
    """The runtime handler of its pod; empty for the default one, or if it is unknown."""
