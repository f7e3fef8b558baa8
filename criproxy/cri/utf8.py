"""Reads messages whose strings are not UTF-8.

Runtimes written in Go accept any bytes in a string; Python's protobuf rejects the whole message. A list of all
containers must not fail because of one label, so such a message is parsed again with every string as bytes, and each
byte that is not UTF-8 becomes U+FFFD. Only criproxy's view of the message changes: the messages between the kubelet and
the runtime stay unchanged.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TypeVar

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessages

from criproxy.cri import api_pb2 as api

M = TypeVar("M", bound=Message)
_Field = descriptor_pb2.FieldDescriptorProto


def parse(kind: type[M], data: bytes) -> M:
    """*data* as a *kind*, with U+FFFD for what is not UTF-8; raises DecodeError if it is no *kind* even so."""
    try:
        return kind.FromString(data)
    except DecodeError:
        return kind.FromString(_repaired(kind, data))


def _repaired(kind: type[Message], data: bytes) -> bytes:
    twin = _twins()[kind.DESCRIPTOR.full_name].FromString(data)
    _repair(twin)
    return twin.SerializeToString()


def _repair(message: Message) -> None:
    """Replace what is not UTF-8 in the strings of *message*, one of `_twins`; what is bytes in CRI stays as it is."""
    for field, value in message.ListFields():
        values = value if field.is_repeated else [value]
        if field.type == _Field.TYPE_MESSAGE:
            for each in values:
                _repair(each)
        elif field.json_name.startswith(_STRING):
            texts = [each.decode("utf-8", "replace").encode() for each in values]
            if field.is_repeated:
                value[:] = texts
            else:
                setattr(message, field.name, texts[0])


_STRING = "string "
"""Marks those fields of `_twins` that are strings in CRI."""


@cache
def _twins() -> Mapping[str, type[Message]]:
    """Return copies of CRI's messages, by name, with bytes for each string, so that any content can be parsed.

    They are created when they are first needed. The keys of a map cannot be bytes, so a map is the list of its entries
    here, which has the same encoding on the wire.
    """
    file = descriptor_pb2.FileDescriptorProto()
    api.DESCRIPTOR.CopyToProto(file)
    file.ClearField("service")
    for message in _with_nested(file.message_type):
        message.options.ClearField("map_entry")
        for field in message.field:
            if field.type == _Field.TYPE_STRING:
                field.type, field.json_name = _Field.TYPE_BYTES, f"{_STRING}{field.name}"
    return dict(GetMessages([file], DescriptorPool()))


def _with_nested(
    messages: Iterable[descriptor_pb2.DescriptorProto],
) -> Iterator[descriptor_pb2.DescriptorProto]:
    for message in messages:
        yield message
        yield from _with_nested(message.nested_type)
