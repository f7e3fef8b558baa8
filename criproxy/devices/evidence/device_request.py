"""What the rules about devices read of a CreateContainer request, and what a device plugin's response adds to it.

The values here are independent of the messages, and the same for every class of cards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from criproxy.devices.classes.cards import Stock, visible_value
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import Offered, is_replica, unique

ANNOTATION = "devices.criproxy.io/"
"""The prefix of our annotations, before the resource, whose ``/`` is replaced by ``_``; the value is a list of ids."""


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


class InvalidRequest(ValueError):
    """The request is answered with an error: the kubelet does not admit the pod, and shows the text in its status."""


def invalid_request(resource: str, text: str) -> InvalidRequest:
    """Return the error about a request for *resource*, in the words of NVIDIA's plugin."""
    return InvalidRequest(f'invalid allocation request for "{resource}": invalid request: {text}')


def chosen(resource: str, offered: Mapping[str, Offered], ids: Sequence[str], *, only_one: bool) -> list[Offered]:
    """Return what a container gets for its *ids*, each once.

    Args:
        resource: the requested resource, with its domain.
        offered: all that it offers.
        ids: the ids that the kubelet requests.
        only_one: whether a container can get at most one replica.

    Raises:
        InvalidRequest: an id is not offered, or there are too many.
    """
    if (unknown := next((each for each in ids if each not in offered), None)) is not None:
        raise invalid_request(resource, f"unknown device: {unknown}")
    if only_one and len(ids) > 1 and any(map(is_replica, ids)):
        raise invalid_request(resource, f"maximum request size for shared resources is 1; found {len(ids)}")
    return [offered[each] for each in unique(ids)]


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount from the host."""

    container_path: str
    host_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The response for one container."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The annotations of the container, not of its pod."""
    cdi_devices: tuple[str, ...] = ()
    """Qualified names, ``vendor/class=device``."""


def joined(response: Response, resource: str, ids: Sequence[str]) -> Response:
    """Return *response* with our annotation, which tells the proxy which ids are allocated to the container.

    Args:
        response: the response without it.
        resource: the resource, with its domain.
        ids: the ids that the kubelet requested, replicas with their numbers.
    """
    key = ANNOTATION + resource.replace("/", "_", 1)
    return replace(response, annotations={**response.annotations, key: ",".join(ids)})


def of_class(kind: DeviceClass, stock: Stock, cards: Sequence[Offered]) -> Response:
    """Return the response with *cards* of a class whose plugin is ours: device nodes, and the variable.

    Args:
        kind: the class.
        stock: its cards on the machine.
        cards: what the kubelet requested; several replicas of a card count as one card.
    """
    paths = unique((*stock.shared, *(path for each in cards for path in each.paths)))
    nodes = tuple(DeviceNode(path, path, kind.permissions) for path in paths if cards)
    is_named = kind.visible_env and kind.write_env
    value = visible_value(kind, unique(each.card for each in cards), stock) if is_named else None
    return Response(envs={} if value is None else {kind.visible_env: value.decode()}, devices=nodes)
