"""CRI messages as plain data for logs, without values that may be secret.

Hidden are:

* credentials of registries (`AuthConfig`, all but the server), and credential specs of Windows;
* values of environment variables, which may be passwords; the names stay;
* commands and arguments after the program's name, which may contain passwords, too;
* output of ExecSync, and URLs of Exec, Attach and PortForward, whose token grants access;
* the ``info`` of verbose status replies: runtimes put the whole OCI spec there;
* values of labels, annotations and options whose key looks secret, and last-applied configurations;
* fields that this version does not know, which are omitted.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

HIDDEN = "<hidden>"

_SECRET_KEY = re.compile(
    r"passw|passphrase|(?<!by)(?<!com)pass(?![a-z])|(?<![a-z])pwd?(?![a-z])|(?-i:[a-z]P(?:ass|wd?)(?![a-z]))|secret|token|credential|auth|private|key\b|api-?key|last-applied-configuration",
    re.IGNORECASE,
)


def _hide(_value: object) -> str:
    return HIDDEN


def _hide_size(value: bytes) -> str:
    return f"<{len(value)} bytes hidden>"


def _hide_arguments(words: list[str]) -> list[str]:
    return [words[0], *(HIDDEN for _ in words[1:])]


def _hide_all(words: list[str]) -> list[str]:
    return [HIDDEN for _ in words]


_AUTH = ("username", "password", "auth", "identity_token", "registry_token")

HIDDEN_FIELDS: Mapping[str, Mapping[str, Callable[[Any], object]]] = {
    "AuthConfig": dict.fromkeys(_AUTH, _hide),
    "KeyValue": {"value": _hide},
    "ContainerConfig": {"command": _hide_arguments, "args": _hide_all},
    "ExecRequest": {"cmd": _hide_arguments},
    "ExecSyncRequest": {"cmd": _hide_arguments},
    "ExecSyncResponse": {"stdout": _hide_size, "stderr": _hide_size},
    "ExecResponse": {"url": _hide},
    "AttachResponse": {"url": _hide},
    "PortForwardResponse": {"url": _hide},
    "StatusResponse": {"info": _hide},
    "PodSandboxStatusResponse": {"info": _hide},
    "ContainerStatusResponse": {"info": _hide},
    "ImageStatusResponse": {"info": _hide},
    "WindowsContainerSecurityContext": {"credential_spec": _hide},
    "WindowsSandboxSecurityContext": {"credential_spec": _hide},
}
"""Message → field → function that returns its replacement."""


def to_plain(message: Message) -> dict[str, Any]:
    """Convert *message* to JSON values: set fields only, by their names, enums by name."""
    hidden = HIDDEN_FIELDS.get(message.DESCRIPTOR.name, {})
    return {
        field.name: hidden[field.name](value) if field.name in hidden else _plain_field(field, value)
        for field, value in message.ListFields()
    }


def looks_secret(key: str) -> bool:
    """Whether the value under *key* of a map is hidden."""
    return _SECRET_KEY.search(key) is not None


def _plain_field(field: FieldDescriptor, value: Any) -> object:  # noqa: ANN401 - whatever the field's type is
    if _is_map(field):
        return {key: HIDDEN if looks_secret(str(key)) else item for key, item in value.items()}
    if field.is_repeated:
        return [_plain(field, item) for item in value]
    return _plain(field, value)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _plain(field: FieldDescriptor, value: Any) -> object:  # noqa: ANN401 - whatever the field's type is
    if field.message_type is not None:
        return to_plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    return _hide_size(value) if isinstance(value, bytes) else value
