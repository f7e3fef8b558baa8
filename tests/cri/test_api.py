"""The message modules against the facts of the four APIs.

The facts are files of the shared folder; a clone without them skips these comparisons.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
)

from criproxy.cri import api_pb2 as cri
from criproxy.cri import deviceplugin_pb2 as deviceplugin
from criproxy.cri import pluginregistration_pb2 as pluginregistration
from criproxy.cri import podresources_pb2 as podresources

Facts = dict[str, Any]

APIS = [
    pytest.param(cri.DESCRIPTOR, "cri-v1.json", id="cri"),
    pytest.param(podresources.DESCRIPTOR, "podresources-v1.json", id="podresources"),
    pytest.param(deviceplugin.DESCRIPTOR, "deviceplugin-v1beta1.json", id="deviceplugin"),
    pytest.param(pluginregistration.DESCRIPTOR, "pluginregistration-v1.json", id="pluginregistration"),
]
SCALARS = {
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    FieldDescriptorProto.TYPE_INT32: "int32",
    FieldDescriptorProto.TYPE_INT64: "int64",
    FieldDescriptorProto.TYPE_STRING: "string",
    FieldDescriptorProto.TYPE_UINT32: "uint32",
    FieldDescriptorProto.TYPE_UINT64: "uint64",
}


# ---------------------------------------------------------------- descriptors in the words of the facts


def file_facts(descriptor: FileDescriptor) -> Facts:
    """Return everything that *descriptor* declares, in the shape of the facts."""
    file = FileDescriptorProto.FromString(descriptor.serialized_pb)
    prefix = f".{file.package}."
    nested = [(f"{outer.name}.{enum.name}", enum) for outer in file.message_type for enum in outer.enum_type]
    enums = [(enum.name, enum) for enum in file.enum_type] + nested
    return {
        "package": file.package,
        "services": {s.name: [method_facts(method, prefix) for method in s.method] for s in file.service},
        "messages": {m.name: message_facts(m, prefix) for m in file.message_type},
        "enums": {name: enum_facts(enum) for name, enum in enums},
    }


def method_facts(method: MethodDescriptorProto, prefix: str) -> Facts:
    """Return a method with its messages and streams."""
    return {
        "method": method.name,
        "request": method.input_type.removeprefix(prefix),
        "response": method.output_type.removeprefix(prefix),
        "client_streaming": method.client_streaming,
        "server_streaming": method.server_streaming,
    }


def message_facts(message: DescriptorProto, prefix: str) -> list[Facts]:
    """Return the fields of a message in the order of their numbers."""
    maps = {f"{prefix}{message.name}.{entry.name}": entry for entry in message.nested_type if entry.options.map_entry}
    return sorted((field_facts(message, field, maps, prefix) for field in message.field), key=by_number)


def field_facts(
    message: DescriptorProto, field: FieldDescriptorProto, maps: dict[str, DescriptorProto], prefix: str
) -> Facts:
    """Return all that the facts say about a field; *maps* are the message's map entries by full name."""
    entry = maps.get(field.type_name)
    in_oneof = field.HasField("oneof_index") and not field.proto3_optional
    return {
        "number": field.number,
        "name": field.name,
        "type": map_type(entry, prefix) if entry else field_type(field, prefix),
        "label": "map" if entry else label(field),
        "oneof": message.oneof_decl[field.oneof_index].name if in_oneof else None,
        "deprecated": field.options.deprecated,
    }


def label(field: FieldDescriptorProto) -> str:
    """Return how often a field that is no map may stand in a message."""
    if field.proto3_optional:
        return "proto3_optional"
    return "repeated" if field.label == FieldDescriptorProto.LABEL_REPEATED else "singular"


def map_type(entry: DescriptorProto, prefix: str) -> Facts:
    """Return the type of a map field."""
    key, value = (field_type(part, prefix) for part in entry.field)
    return {"map": {"key": key, "value": value}}


def field_type(field: FieldDescriptorProto, prefix: str) -> str | Facts:
    """Return the type of a field that is no map."""
    if field.type == FieldDescriptorProto.TYPE_MESSAGE:
        return {"message": field.type_name.removeprefix(prefix)}
    if field.type == FieldDescriptorProto.TYPE_ENUM:
        return {"enum": field.type_name.removeprefix(prefix)}
    return SCALARS[field.type]


def enum_facts(enum: EnumDescriptorProto) -> dict[str, int]:
    """Return the numbers of an enum by name."""
    return {value.name: value.number for value in enum.value}


def by_number(field: Facts) -> int:
    """Order fields, which the facts list in the order of their source."""
    number: int = field["number"]
    return number


@pytest.mark.parametrize(("descriptor", "file"), APIS)
@pytest.mark.parametrize("part", ["package", "services", "messages", "enums"])
def test_the_modules_say_what_the_facts_say(shared_dir: Path, descriptor: FileDescriptor, file: str, part: str) -> None:
    """Nothing is missing, nothing is added, and every number, name, type, label and flag is as upstream."""
    facts = json.loads((shared_dir / "reference" / file).read_text())
    facts["messages"] = {name: sorted(fields, key=by_number) for name, fields in facts["messages"].items()}

    assert facts[part] == file_facts(descriptor)[part]


def test_the_facts_are_not_empty(shared_dir: Path) -> None:
    """The comparison is made with the whole CRI: its messages, methods and fields are as many as upstream's."""
    facts = json.loads((shared_dir / "reference" / "cri-v1.json").read_text())

    assert len(facts["messages"]) == 175
    assert [len(methods) for methods in facts["services"].values()] == [37, 6]
