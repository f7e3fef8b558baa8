"""A device plugin's response for one container: what the kubelet adds to the CreateContainer request.

The values here are independent of the kubelet's messages, and the same for every class of cards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from criproxy.devices.classes.cards import Stock, visible_value
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import Offered, unique
from criproxy.devices.evidence.device_request import DeviceNode
from criproxy.devices.evidence.evidence import ANNOTATION


class InvalidRequest(ValueError):
    """The request is answered with an error: the kubelet does not admit the pod, and shows the text in its status."""


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


def of_class(kind: DeviceClass, stock: Stock, chosen: Sequence[Offered]) -> Response:
    """Return the response with *chosen* cards of a class whose plugin is ours: device nodes, and the variable.

    Args:
        kind: the class.
        stock: its cards on the machine.
        chosen: what the kubelet requested; several replicas of a card count as one card.
    """
    paths = unique((*stock.shared, *(path for each in chosen for path in each.paths)))
    nodes = tuple(DeviceNode(path, path, kind.permissions) for path in paths if chosen)
    cards = unique(each.card for each in chosen)
    value = visible_value(kind, cards, stock) if kind.visible_env and kind.write_env else None
    return Response(envs={} if value is None else {kind.visible_env: value.decode()}, devices=nodes)
