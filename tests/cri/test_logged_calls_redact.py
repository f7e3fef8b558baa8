"""Nothing secret survives on the way from a message to a log."""

import base64
import json
from typing import cast

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from criproxy.cri import api_pb2
from criproxy.cri.logged_calls import HIDDEN, looks_secret, to_plain
from criproxy.cri.methods import METHODS

PLANTED = "Tr0ub4dor&3"

SECRET_FIELDS = set(
    (
        "AttachResponse.url AuthConfig.auth AuthConfig.identity_token AuthConfig.password AuthConfig.registry_token "
        "AuthConfig.username ContainerStatusResponse.info ExecResponse.url ExecSyncResponse.stderr "
        "ExecSyncResponse.stdout ImageStatusResponse.info KeyValue.value PodSandboxStatusResponse.info "
        "PortForwardResponse.url StatusResponse.info WindowsContainerSecurityContext.credential_spec "
        "WindowsSandboxSecurityContext.credential_spec"
    ).split()
)
"""Where every value is secret."""
SECRET_TAILS = {"ContainerConfig.command", "ExecRequest.cmd", "ExecSyncRequest.cmd"}
"""Where all words but the first are."""
SECRET_LISTS = {"ContainerConfig.args"}

SECRET_KEYS = (
    "kubectl.kubernetes.io/last-applied-configuration example.com/password db-passwd API_KEY tls.key "
    "vault.hashicorp.com/token my-Secret aws-credentials registry-auth privateStuff pw example.com/db_pw DB_PW_2 "
    "dbPw pwd mysqlPwd pass db_pass_1 userpass dbPass passphrase.example.com/x"
).split()
PLAIN_KEYS = (
    "io.kubernetes.pod.name app io.kubernetes.container.hash criproxy/placement keyboard bypass "
    "example.com/bypass compass passengers passive pwm power cpw"
).split()


def fill(message: Message, depth: int = 6) -> None:
    """Set all fields; plant the secret wherever it may not be seen."""
    for field in message.DESCRIPTOR.fields:
        fill_field(message, cast("FieldDescriptor", field), depth)


def fill_field(message: Message, field: FieldDescriptor, depth: int) -> None:
    """Set one field."""
    name = f"{message.DESCRIPTOR.name}.{field.name}"
    target = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        if field.message_type.fields_by_name["value"].message_type is None:
            secret = name in SECRET_FIELDS
            target.update(dict.fromkeys(PLAIN_KEYS if secret else SECRET_KEYS, PLANTED))
    elif field.message_type is not None:
        if depth > 0:
            fill(target.add() if field.is_repeated else target, depth - 1)
    elif name in SECRET_TAILS:
        target.extend(["/bin/sh", PLANTED, f"--password={PLANTED}"])
    elif name in SECRET_LISTS:
        target.extend([PLANTED, "-p"])
    elif field.is_repeated:
        target.extend([scalar(field, name)])
    else:
        setattr(message, field.name, scalar(field, name))


def scalar(field: FieldDescriptor, name: str) -> str | bytes | float:
    """A value of the field's type: the secret, or something harmless."""
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return f"x{PLANTED}y" if name in SECRET_FIELDS else "ü\n"
        case FieldDescriptor.TYPE_BYTES:
            return PLANTED.encode()
        case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
            return 0.5
        case _:
            return 1


ALL_MESSAGES = {kind.DESCRIPTOR.name: kind for m in METHODS.values() for kind in (m.request, m.reply)}


@pytest.mark.parametrize("name", sorted(ALL_MESSAGES))
def test_no_secret_of_a_full_message_is_shown(name: str) -> None:
    """With every field set that there is, at every depth, no secret is visible, as text or in another notation."""
    message = ALL_MESSAGES[name]()
    fill(message)

    shown = json.dumps(to_plain(message), ensure_ascii=False)

    assert PLANTED not in shown
    assert base64.b64encode(PLANTED.encode()).decode()[:12] not in shown


@pytest.mark.parametrize("name", sorted(SECRET_FIELDS | SECRET_TAILS | SECRET_LISTS))
def test_each_secret_place_exists(name: str) -> None:
    """The places of this test are fields of CRI, so that a renamed field is noticed."""
    message, field = name.split(".")

    assert field in api_pb2.DESCRIPTOR.message_types_by_name[message].fields_by_name


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_secret_keys(key: str) -> None:
    """Keys under which people keep secrets."""
    assert looks_secret(key)


@pytest.mark.parametrize("key", PLAIN_KEYS)
def test_plain_keys(key: str) -> None:
    """What a trace is read for stays visible."""
    assert not looks_secret(key)


def test_what_is_not_secret_is_shown() -> None:
    """Names of variables, the program, resources and enums by name can be read."""
    config = api_pb2.ContainerConfig(
        command=["/bin/server", "--password=x"],
        args=["-v"],
        envs=[api_pb2.KeyValue(key="DB_PASSWORD", value=PLANTED.encode())],
        labels={"app": "web", "token": "t"},
        mounts=[api_pb2.Mount(propagation=api_pb2.PROPAGATION_BIDIRECTIONAL)],
    )
    config.linux.resources.cpu_shares = 1024

    expected = {
        "command": ["/bin/server", HIDDEN],
        "args": [HIDDEN],
        "envs": [{"key": "DB_PASSWORD", "value": HIDDEN}],
        "labels": {"app": "web", "token": HIDDEN},
        "linux": {"resources": {"cpu_shares": 1024}},
        "mounts": [{"propagation": "PROPAGATION_BIDIRECTIONAL"}],
    }
    assert expected == to_plain(config)


def test_unknown_fields_are_not_shown() -> None:
    """What this version cannot name might be a secret."""
    message = api_pb2.AuthConfig()
    message.ParseFromString(b"\xfa\x07\x0b" + PLANTED.encode())  # field 127

    assert to_plain(message) == {}
