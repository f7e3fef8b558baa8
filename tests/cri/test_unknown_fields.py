"""Fields that are newer than our messages survive parse, edit, serialise, at any depth.

A newer peer is made by giving every message of a tree a field that its type does not have.
"""

from collections.abc import Iterator

import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cri import api_pb2 as cri
from criproxy.cri import deviceplugin_pb2 as deviceplugin
from criproxy.cri import pluginregistration_pb2 as pluginregistration
from criproxy.cri import podresources_pb2 as podresources

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
NEWER = 1000  # a number that no message has
TYPES = [
    pytest.param(GetMessageClass(descriptor), id=descriptor.full_name)
    for file in (cri.DESCRIPTOR, podresources.DESCRIPTOR, deviceplugin.DESCRIPTOR, pluginregistration.DESCRIPTOR)
    for descriptor in file.message_types_by_name.values()
]


def varint(value: int) -> bytes:
    """Encode *value* (0 or more) in base 128."""
    head = bytearray()
    while value > 0x7F:
        head.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*head, value])


def encoded(number: int, wire_type: int, payload: int | bytes) -> bytes:
    """Encode one field."""
    tag = varint(number << 3 | wire_type)
    if isinstance(payload, bytes):
        return tag + (varint(len(payload)) if wire_type == BYTES else b"") + payload
    return tag + varint(payload)


def children(message: Message) -> Iterator[Message]:
    """Yield the messages right under *message*, making one (in lists two) of every kind first."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        value = getattr(message, field.name)
        if field.is_repeated:
            yield from (value.add(), value.add()) if len(value) == 0 else value
        else:
            value.SetInParent()
            yield value


def tree(message: Message) -> Iterator[Message]:
    """Yield *message* and everything under it."""
    yield message
    for child in children(message):
        yield from tree(child)


def newer(kind: type[Message], unknown: bytes) -> tuple[bytes, int]:
    """Return a whole tree of *kind* with *unknown* in each message, and how many messages it has."""
    message = kind()
    count = 0
    for part in tree(message):
        part.MergeFromString(unknown)
        count += 1
    return message.SerializeToString(), count


def kept(message: Message) -> list[tuple[int, int, object]]:
    """Return every unknown field of the tree as number, wire type and value."""
    sets = [UnknownFieldSet(part) for part in tree(message)]
    fields = [one[index] for one in sets for index in range(len(one))]
    return [(field.field_number, field.wire_type, field.data) for field in fields]


unknown_fields = st.one_of(
    st.tuples(st.integers(NEWER, 2**29 - 1), st.just(VARINT), st.integers(0, 2**64 - 1)),
    st.tuples(st.integers(NEWER, 2**29 - 1), st.just(FIXED64), st.binary(min_size=8, max_size=8)),
    st.tuples(st.integers(NEWER, 2**29 - 1), st.just(BYTES), st.binary(max_size=200)),
    st.tuples(st.integers(NEWER, 2**29 - 1), st.just(FIXED32), st.binary(min_size=4, max_size=4)),
)


@pytest.mark.parametrize("kind", TYPES)
def test_every_message_keeps_what_it_does_not_know(kind: type[Message]) -> None:
    """Parsing and serialising any message gives the same unknown fields in each message of its tree."""
    data, count = newer(kind, encoded(NEWER, BYTES, b"new"))
    message = kind.FromString(data)

    assert kept(message) == [(NEWER, BYTES, b"new")] * count
    assert message.SerializeToString() == data


@given(unknown_fields)
def test_editing_a_create_keeps_unknown_fields(field: tuple[int, int, int | bytes]) -> None:
    """Writing what we own into a newer CreateContainer loses nothing, whatever the kind of the unknown field."""
    data, count = newer(cri.CreateContainerRequest, encoded(*field))
    request = cri.CreateContainerRequest.FromString(data)
    before = kept(request)
    request.config.annotations["criproxy/placement"] = "{}"
    request.config.linux.resources.cpuset_cpus = "0-3"
    request.config.linux.resources.unified["cpu.idle"] = "0"
    request.config.mounts[0].host_path = "/elsewhere"
    request.config.envs[1].value = b"\xff"
    after = cri.CreateContainerRequest.FromString(request.SerializeToString())

    assert kept(after) == before
    assert len(before) == count
    assert after.config.linux.resources.cpuset_cpus == "0-3"
    assert after.config.envs[1].value == b"\xff"


def test_copies_keep_unknown_fields() -> None:
    """CopyFrom, MergeFrom and adding to a list take the unknown fields along, nested ones too."""
    data, count = newer(cri.LinuxContainerConfig, encoded(NEWER, VARINT, 7))
    original = cri.LinuxContainerConfig.FromString(data)
    copied, merged, listed = cri.ContainerConfig(), cri.ContainerConfig(), cri.RestorePodRequest()
    copied.linux.CopyFrom(original)
    merged.linux.MergeFrom(original)
    listed.container_configs.append(copied)

    for holder in (copied, merged, listed.container_configs[0]):
        assert holder.linux.SerializeToString() == data
        assert kept(holder.linux) == [(NEWER, VARINT, 7)] * count


def test_removing_one_of_a_list_keeps_the_unknown_fields_of_the_rest() -> None:
    """What an edited list still holds is as it came."""
    request = cri.ListContainersResponse()
    for number in range(3):
        request.containers.add(id=str(number)).MergeFromString(encoded(NEWER, VARINT, number))
    parsed = cri.ListContainersResponse.FromString(request.SerializeToString())
    del parsed.containers[1]
    again = cri.ListContainersResponse.FromString(parsed.SerializeToString())

    assert [UnknownFieldSet(container)[0].data for container in again.containers] == [0, 2]


def test_numbers_of_newer_enum_values_survive() -> None:
    """A state or signal that we have no name for is passed on by its number."""
    status = cri.ContainerStatus.FromString(encoded(3, VARINT, 77) + encoded(19, VARINT, 99))
    status.annotations["a"] = "b"
    again = cri.ContainerStatus.FromString(status.SerializeToString())

    assert (again.state, again.stop_signal) == (77, 99)


def test_environment_values_need_not_be_text() -> None:
    """A value that is not UTF-8 is read and written as it is."""
    data = encoded(1, BYTES, b"KEY") + encoded(2, BYTES, b"\xff\xfe")

    assert cri.KeyValue.FromString(data).SerializeToString() == data
