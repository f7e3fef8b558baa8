"""``--trace-calls``: writes chosen calls to the log, request and reply, without secrets (see `redact`)."""

import difflib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from criproxy.cri.methods import BY_PATH, METHODS, Method
from criproxy.errors import UsageError
from criproxy.wire.calls import Call, Outcome, Proceed, Refuse, Rule, Table, Verdict

LIMIT_CHARS = 16_384
"""The longest JSON of one message; longer ones are cut."""
Write = Callable[..., None]
"""Receives an event and keys, like a method of a structlog logger."""
HIDDEN = "<hidden>"
_SECRET_KEY = re.compile(
    r"passw|passphrase|(?<!by)(?<!com)pass(?![a-z])|(?<![a-z])pwd?(?![a-z])|(?-i:[a-z]P(?:ass|wd?)(?![a-z]))|secret|token|credential|auth|private|key\b|api-?key|last-applied-configuration",
    re.IGNORECASE,
)


def resolve(names: Iterable[str]) -> frozenset[str]:
    """Return the paths for *names*: short names, full paths, or ``*`` for every method of CRI.

    Raises:
        UsageError: a name is unknown; the text has the most similar one.
    """
    found: set[str] = set()
    for name in names:
        if name == "*":
            found.update(BY_PATH)
        elif name in METHODS:
            found.update(METHODS[name].paths)
        elif name in BY_PATH:
            found.add(name)
        else:
            near = difflib.get_close_matches(name, [*METHODS, *BY_PATH], n=1, cutoff=0.0)
            raise UsageError(f"--trace-calls: CRI has no method {name!r}; did you mean {near[0]}?")
    return frozenset(found)


def traced(table: Table, paths: frozenset[str], write: Write) -> Table:
    """Return *table* with the calls to *paths* also passed to *write*.

    A traced call that would pass through is watched instead: its messages are copied.
    """
    tracer = _Tracer(write)
    return {**table, **{path: tracer.rule(BY_PATH[path], table.get(path, Rule())) for path in paths}}


class _Tracer:
    def __init__(self, write: Write) -> None:
        self._write = write
        self._verdicts: dict[tuple[int, int], Verdict] = {}
        """(connection, stream) of a held call that has not ended → the verdict of its handler."""

    def rule(self, method: Method, inner: Rule) -> Rule:
        """Return *inner* with tracing around its handlers."""

        async def hold(call: Call, message: bytes) -> Verdict:
            assert inner.hold is not None
            verdict = self._verdicts[call.connection, call.stream] = await inner.hold(call, message)
            return verdict

        def done(call: Call, outcome: Outcome) -> None:
            verdict = self._verdicts.pop((call.connection, call.stream), None)
            if inner.done is not None:
                inner.done(call, outcome)
            self._log_end(method, call, outcome, verdict)

        def each(call: Call, message: bytes) -> None:
            if inner.each is not None:
                inner.each(call, message)
            self._write("call message", **_name(call), reply=_render(method.reply, message))

        of_messages = each if method.server_streaming else inner.each
        return replace(inner, hold=hold if inner.hold else None, done=done, each=of_messages)

    def _log_end(self, method: Method, call: Call, outcome: Outcome, verdict: Verdict | None) -> None:
        keys = _name(call) | {"outcome": outcome.kind.value, "duration_s": round(time.monotonic() - call.begun_s, 6)}
        keys["request"] = _render(method.request, call.request)
        match verdict:
            case Refuse(code, text):
                keys |= {"refused": code.name, "reason": text}
            case Proceed(message) if message is not None:
                keys["sent"] = _render(method.request, message)
        if outcome.reply is not None and not method.server_streaming:
            keys["reply"] = _render(method.reply, outcome.reply)
        self._write("call", **keys)


def _name(call: Call) -> dict[str, Any]:
    return {"method": call.method, "connection": call.connection, "stream": call.stream}


def _render(kind: type[Message], data: bytes | None) -> object:
    """Return the message as plain data; if it is unreadable, only its size, since its bytes may contain secrets."""
    if data is None:
        return "<unreadable or too large>"
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return f"<{len(data)} bytes that are no {kind.DESCRIPTOR.name}>"
    plain = to_plain(message)
    text = json.dumps(plain, ensure_ascii=False)
    if len(text) <= LIMIT_CHARS:
        return plain
    return f"{text[:LIMIT_CHARS]}… and {len(text) - LIMIT_CHARS} characters more"


def _hide(_value: object) -> str:
    return HIDDEN


def _hide_size(value: bytes) -> str:
    return f"<{len(value)} bytes hidden>"


def _hide_arguments(words: list[str]) -> list[str]:
    return [words[0], *(HIDDEN for _ in words[1:])]


_AUTH = ("username", "password", "auth", "identity_token", "registry_token")
_WITH_INFO = ("StatusResponse", "PodSandboxStatusResponse", "ContainerStatusResponse", "ImageStatusResponse")
HIDDEN_FIELDS: Mapping[str, Mapping[str, Callable[[Any], object]]] = {
    "AuthConfig": dict.fromkeys(_AUTH, _hide),
    "KeyValue": {"value": _hide},
    "ContainerConfig": {"command": _hide_arguments, "args": lambda words: [HIDDEN for _ in words]},
    **{key: {"cmd": _hide_arguments} for key in ("ExecRequest", "ExecSyncRequest")},
    "ExecSyncResponse": {"stdout": _hide_size, "stderr": _hide_size},
    **{key: {"url": _hide} for key in ("ExecResponse", "AttachResponse", "PortForwardResponse")},
    **{key: {"info": _hide} for key in _WITH_INFO},
    **{f"Windows{each}SecurityContext": {"credential_spec": _hide} for each in ("Container", "Sandbox")},
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
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {key: HIDDEN if looks_secret(str(key)) else item for key, item in value.items()}
    if field.is_repeated:
        return [_plain(field, item) for item in value]
    return _plain(field, value)


def _plain(field: FieldDescriptor, value: Any) -> object:  # noqa: ANN401 - whatever the field's type is
    if field.message_type is not None:
        return to_plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    return _hide_size(value) if isinstance(value, bytes) else value
