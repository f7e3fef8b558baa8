"""The message modules against the facts of the five APIs.

The facts are files of the shared folder; a clone without them skips these comparisons.
"""

import json
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from criproxy.cri import api_pb2 as cri
from criproxy.cri import deviceplugin_pb2 as deviceplugin
from criproxy.cri import pluginregistration_pb2 as pluginregistration
from criproxy.cri import podresources_pb2 as podresources
from criproxy.cri import pods_pb2 as pods

Facts = dict[str, Any]

APIS = [
    pytest.param(cri.DESCRIPTOR, "cri-v1.json", id="cri"),
    pytest.param(podresources.DESCRIPTOR, "podresources-v1.json", id="podresources"),
    pytest.param(deviceplugin.DESCRIPTOR, "deviceplugin-v1beta1.json", id="deviceplugin"),
    pytest.param(pluginregistration.DESCRIPTOR, "pluginregistration-v1.json", id="pluginregistration"),
    pytest.param(pods.DESCRIPTOR, "pods-v1alpha1.json", id="pods"),
]


def facts_of(descriptor: FileDescriptor) -> Facts:
    """Return everything that *descriptor* declares, in the shape of the facts."""
    file = FileDescriptorProto.FromString(descriptor.serialized_pb)
    prefix = f".{file.package}."
    nested = [(f"{outer.name}.{enum.name}", enum) for outer in file.message_type for enum in outer.enum_type]
    enums = [(enum.name, enum) for enum in file.enum_type] + nested
    return {
        "package": file.package,
        "services": {
            service.name: [
                {
                    "method": method.name,
                    "request": method.input_type.removeprefix(prefix),
                    "response": method.output_type.removeprefix(prefix),
                    "client_streaming": method.client_streaming,
                    "server_streaming": method.server_streaming,
                }
                for method in service.method
            ]
            for service in file.service
        },
        "messages": {message.name: fields_of(message, prefix) for message in file.message_type},
        "enums": {name: {value.name: value.number for value in enum.value} for name, enum in enums},
    }


def fields_of(message: DescriptorProto, prefix: str) -> list[Facts]:
    """Return the fields of a message in the order of their numbers."""
    maps = {f"{prefix}{message.name}.{entry.name}": entry for entry in message.nested_type if entry.options.map_entry}

    def type_of(field: FieldDescriptorProto) -> str | Facts:
        if entry := maps.get(field.type_name):
            return {"map": dict(zip(("key", "value"), map(type_of, entry.field), strict=True))}
        kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
        return {kind: field.type_name.removeprefix(prefix)} if kind in ("message", "enum") else kind

    def label(field: FieldDescriptorProto) -> str:
        if field.type_name in maps or field.proto3_optional:
            return "map" if field.type_name in maps else "proto3_optional"
        return "repeated" if field.label == FieldDescriptorProto.LABEL_REPEATED else "singular"

    return [
        {
            "number": field.number,
            "name": field.name,
            "type": type_of(field),
            "label": label(field),
            "oneof": message.oneof_decl[field.oneof_index].name
            if field.HasField("oneof_index") and not field.proto3_optional
            else None,
            "deprecated": field.options.deprecated,
        }
        for field in sorted(message.field, key=lambda field: field.number)
    ]


@pytest.mark.parametrize(("descriptor", "file"), APIS)
@pytest.mark.parametrize("part", ["package", "services", "messages", "enums"])
def test_the_modules_say_what_the_facts_say(shared_dir: Path, descriptor: FileDescriptor, file: str, part: str) -> None:
    """Nothing is missing, nothing is added, and every number, name, type, label and flag is as upstream."""
    facts = json.loads((shared_dir / "reference" / file).read_text())
    facts["messages"] = {name: sorted(fields, key=itemgetter("number")) for name, fields in facts["messages"].items()}

    assert facts[part] == facts_of(descriptor)[part]
