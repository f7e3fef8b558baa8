"""What a device plugin answers for one container: what the kubelet adds to the container's create.

The values here are independent of the kubelet's messages, and the same for every class of cards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from criproxy.devices.asked import DeviceNode
from criproxy.devices.evidence import ANNOTATION


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
