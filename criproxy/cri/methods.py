"""The methods of CRI: their paths and messages, read from the descriptors of `api_pb2`.

Clients of Kubernetes before 1.23 call them in the package ``runtime.v1alpha2``, whose messages have the layout of
``runtime.v1``, so one set of message classes serves both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from criproxy.cri import api_pb2
from criproxy.cri.touched_methods import call_paths


@dataclass(frozen=True, slots=True)
class Method:
    """One method of RuntimeService or ImageService."""

    service: str
    """``RuntimeService`` or ``ImageService``."""
    name: str
    """Such as ``CreateContainer``; unique across the services."""
    request: type[Message]
    reply: type[Message]
    server_streaming: bool

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of its calls, one per package of `PACKAGES`."""
        return call_paths(self.service, self.name)


def _method(descriptor: MethodDescriptor) -> Method:
    return Method(
        service=descriptor.containing_service.name,
        name=descriptor.name,
        request=GetMessageClass(descriptor.input_type),
        reply=GetMessageClass(descriptor.output_type),
        server_streaming=bool(descriptor.server_streaming),
    )


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        descriptor.name: _method(descriptor)
        for service in api_pb2.DESCRIPTOR.services_by_name.values()
        for descriptor in service.methods
    }
)
"""Short name → method, for both services."""

BY_PATH: Mapping[str, Method] = MappingProxyType({path: method for method in METHODS.values() for path in method.paths})
"""Path of a call → method."""

KNOWN_METHODS = frozenset(BY_PATH)
"""Every path that metrics may use as a label; others are counted as ``other``."""


def paths(name: str) -> tuple[str, ...]:
    """Return the paths of the method with the short name *name*.

    Raises:
        KeyError: CRI has no such method.
    """
    return METHODS[name].paths
