"""What a CreateContainer says about devices and about its container: the part of CRI's messages that the rule reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class EnvVar(NamedTuple):
    """A variable; its value is bytes, and compared as such."""

    name: str
    value: bytes


class DeviceNode(NamedTuple):
    """A device node that the runtime is to make in the container."""

    container_path: str
    host_path: str
    permissions: str


class MountPoint(NamedTuple):
    """A mount; what else it says stays in the message."""

    container_path: str
    host_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Everything in the order of the message, with what the message says twice."""

    envs: tuple[EnvVar, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    mounts: tuple[MountPoint, ...] = ()
    cdi: tuple[str, ...] = ()
    """Names of CDI devices, of the field and of annotations."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The container's own. The kubelet and device plugins set these, and users cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """The container, as far as exceptions are made for it."""

    namespace: str = ""
    images: tuple[str, ...] = ()
    """Its image by all names that the message has for it."""
    privileged: bool = False
    runtime: str = ""
    """The runtime handler of its pod; empty for the default one, or where that is not known."""
