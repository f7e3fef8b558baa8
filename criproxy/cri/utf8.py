"""Reads messages whose strings are not UTF-8.

Runtimes written in Go accept any bytes in a string; Python's protobuf rejects the whole message. A list of all
containers must not fail because of one label, so such a message is parsed again with every string as bytes, and each
byte that is not UTF-8 becomes U+FFFD. Only criproxy's view of the message changes: the messages between the kubelet and
the runtime stay unchanged.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessages

from criproxy.cri import api_pb2 as api

MOST_SEARCHED = 10_000
"""Messages of one list that are searched for strings that are not UTF-8."""

M = TypeVar("M", bound=Message)
_Field = descriptor_pb2.FieldDescriptorProto


def parse(kind: type[M], data: bytes) -> M:
    """*data* as a *kind*, with U+FFFD for what is not UTF-8; raises DecodeError if it is no *kind* even so."""
    try:
        return kind.FromString(data)
    except DecodeError:
        return _repaired(kind, _twin(kind, data))


def parse_parts(kind: type[M], data: bytes, parts: Collection[str]) -> M:
    """Like `parse`, but the result has only these *parts*, such as ``config.metadata``: others may be very long."""
    twin = _twin(kind, data)
    _cut(twin, parts)
    return _repaired(kind, twin)


def invalid_strings(kind: type[Message], data: bytes) -> tuple[str, ...]:
    """Return which strings of *data* are not UTF-8, such as ``config.envs.key``; at least one of them is not.

    A request may have a million variables, and other calls wait meanwhile: very long lists of messages are not
    searched, but returned if all other strings are UTF-8.

    Raises:
        DecodeError: it is no *kind*, whatever its strings are.
    """
    unsearched: list[str] = []
    found = tuple(_invalid([_twin(kind, data)], unsearched))
    return found or tuple(unsearched)


def _invalid(messages: Sequence[Message], unsearched: list[str], path: str = "") -> Iterator[str]:
    """Yield the strings that are not UTF-8 in any of *messages*, which are of one type."""
    for field in messages[0].DESCRIPTOR.fields:
        if field.type == _Field.TYPE_MESSAGE:
            if field.is_repeated and sum(len(getattr(message, field.name)) for message in messages) > MOST_SEARCHED:
                unsearched.append(f"{path}{field.name}")
            elif values := _values(field, messages):
                yield from _invalid(values, unsearched, f"{path}{field.name}.")
        elif field.json_name.startswith(_STRING) and not _is_utf8(b"\n".join(_values(field, messages))):
            yield f"{path}{field.name}"


def _values(field: Any, messages: Sequence[Message]) -> list[Any]:  # noqa: ANN401 (protobuf has two types of it)
    name = field.name
    if field.is_repeated:
        return [each for message in messages for each in getattr(message, name)]
    if field.type == _Field.TYPE_MESSAGE:
        return [getattr(message, name) for message in messages if message.HasField(name)]
    return [getattr(message, name) for message in messages]


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _repaired(kind: type[M], twin: Message) -> M:
    _repair(twin)
    return kind.FromString(twin.SerializeToString())


def _twin(kind: type[Message], data: bytes) -> Message:
    return _twins()[kind.DESCRIPTOR.full_name].FromString(data)


def _cut(message: Message, parts: Collection[str], path: str = "") -> None:
    """Remove everything but *parts* from *message*."""
    for field, value in message.ListFields():
        name = f"{path}{field.name}"
        if any(part.startswith(f"{name}.") for part in parts):
            _cut(value, parts, f"{name}.")
        elif name not in parts:
            message.ClearField(field.name)


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
