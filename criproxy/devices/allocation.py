"""What a device plugin answers for one container: what the kubelet adds to the container's create.

The values here are independent of the kubelet's messages, and the same for every class of cards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from criproxy.devices.asked import DeviceNode
from criproxy.devices.cards import Stock, visible_value
from criproxy.devices.classes import DeviceClass
from criproxy.devices.evidence import ANNOTATION
from criproxy.devices.offers import Offered, unique


class InvalidRequest(ValueError):
    """A request to which the kubelet gets an error: the pod is not admitted, and its text is the pod's message."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount from the host."""

    container_path: str
    host_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What one container gets."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the container, not of its pod."""
    cdi_devices: tuple[str, ...] = ()
    """Qualified names, ``vendor/class=device``."""


def joined(response: Response, resource: str, ids: Sequence[str]) -> Response:
    """*response* with our annotation, from which the proxy learns which ids the container was given.

    Args:
        response: what the container gets otherwise.
        resource: with its domain.
        ids: as the kubelet asked for them, replicas with their numbers.
    """
    key = ANNOTATION + resource.replace("/", "_", 1)
    return replace(response, annotations={**response.annotations, key: ",".join(ids)})


def of_class(kind: DeviceClass, stock: Stock, chosen: Sequence[Offered]) -> Response:
    """What a container gets with *chosen* cards of a class whose plugin is ours: their nodes, and their variable.

    Args:
        kind: the class.
        stock: its cards on the machine.
        chosen: what the kubelet asked for; several replicas of a card are one card.
    """
    paths = unique((*stock.shared, *(path for each in chosen for path in each.paths)))
    nodes = tuple(DeviceNode(path, path, kind.permissions) for path in paths if chosen)
    cards = unique(each.card for each in chosen)
    value = visible_value(kind, cards, stock) if kind.visible_env and kind.write_env else None
    return Response(envs={} if value is None else {kind.visible_env: value.decode()}, devices=nodes)
