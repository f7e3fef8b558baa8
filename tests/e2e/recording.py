"""Records what a runtime answers, with ids, times and tokens replaced, so that two conversations can be compared."""

import re
from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from criproxy.cri.methods import METHODS

PADDING = b"\xca\xb8\x02\xef\x03" + b"x" * 495
"""Field 5001 of 495 bytes: 500 bytes more, which every peer skips as a field that it does not know."""
_FROM_36 = (
    "CheckpointPod RestorePod StreamContainerStats StreamContainers StreamImages StreamPodSandboxMetrics "
    "StreamPodSandboxStats StreamPodSandboxes"
)
UNKNOWN_TO_CONTAINERD_16 = frozenset(
    f"{_FROM_36} CheckpointContainer GetContainerEvents ListMetricDescriptors ListPodSandboxMetrics RuntimeConfig "
    "UpdatePodSandboxResources".split()
)
"""What it answers with UNIMPLEMENTED; the rest must succeed at least once in a conversation."""
UNKNOWN = {
    (1, 6): UNKNOWN_TO_CONTAINERD_16,
    (1, 7): UNKNOWN_TO_CONTAINERD_16 - {"GetContainerEvents"},
    (2, 1): UNKNOWN_TO_CONTAINERD_16 - {"CheckpointContainer", "GetContainerEvents", "RuntimeConfig"},
}
"""The same for each containerd, by its version."""
EVENTS = "GetContainerEvents"
NEVER_OK = frozenset({"CheckpointContainer", EVENTS, "PullImage"})
"""Of which no call ends well: CRIU and a registry are missing, and the client's deadline ends the stream of events."""
CLIENTS_DEADLINE = "client's deadline"
"""The label of calls that end by the deadline which the client sends along."""
_ID = re.compile(r"[0-9a-f]{64}")
_TOKEN = re.compile(r"(http://127\.0\.0\.1:\d+/(?:exec|attach|portforward)/)[\w-]+")
_VARIABLE = re.compile(r'"pid":\d+|\d{4}-\d\d-\d\dT[\d:.]+Z|pid \d+')
_TIMES = frozenset({"created_at", "started_at", "finished_at"})

Reply = TypeVar("Reply", bound=Message)


@dataclass(frozen=True, slots=True)
class Answer:
    """How one call ended."""

    label: str
    code: str
    text: str
    messages: tuple[str, ...]
    trailing: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Recorder:
    """Makes calls on *channel* in *package*, such as ``runtime.v1``.

    The replies of *edited* methods must end in `PADDING`, which is taken off.
    """

    channel: grpc.aio.Channel
    package: str = "runtime.v1"
    edited: frozenset[str] = frozenset()
    answers: list[Answer] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)

    async def call(self, name: str, request: Message | bytes, label: str = "", timeout_s: float = 60) -> bytes:
        """Call the method *name*, note what came, and return the first message, empty after an error."""
        service = METHODS[name].service if name in METHODS else "RuntimeService"
        return await self.call_path(f"/{self.package}.{service}/{name}", request, label, timeout_s)

    async def send(self, request: Message, label: str = "", timeout_s: float = 60) -> bytes:
        """Call the method of *request*."""
        return await self.call(type(request).__name__.removesuffix("Request"), request, label, timeout_s)

    async def call_path(self, path: str, request: Message | bytes, label: str = "", timeout_s: float = 60) -> bytes:
        """Call any path; every call is read as a stream, so that a message beside an error is seen."""
        data = request if isinstance(request, bytes) else request.SerializeToString()
        call = self.channel.unary_stream(path, request_serializer=bytes, response_deserializer=bytes)(
            data, timeout=timeout_s
        )
        messages = [self._without_edit(path, message) async for message in _until_end(call)]
        code, text = (await call.code()).name, await call.details() or ""
        is_events = path.rpartition("/")[2] == EVENTS
        if code == "CANCELLED" and (is_events or label == CLIENTS_DEADLINE):
            code = "DEADLINE_EXCEEDED"  # the runtime's clock was first, and it reset the stream
        if label == CLIENTS_DEADLINE or code == "DEADLINE_EXCEEDED":
            text = ""  # chance decides whose clock is first, the client's or the runtime's
        if is_events:
            messages = []  # each event goes to one reader, whoever comes first
        trailing = tuple((str(key), repr(value)) for key, value in await call.trailing_metadata() or ())
        normal = tuple(self._normal_message(path, message) for message in messages)
        self.answers.append(Answer(f"{path} {label}", code, self._normal(text), normal, trailing))
        return messages[0] if messages and code == "OK" else b""

    def named(self, code: Callable[[str], bool]) -> set[str]:
        """Return the short names of the methods with at least one answer whose code *code* accepts."""
        return {answer.label.split()[0].rpartition("/")[2] for answer in self.answers if code(answer.code)}

    def _without_edit(self, path: str, message: bytes) -> bytes:
        if path.rpartition("/")[2] not in self.edited:
            return message
        assert message.endswith(PADDING)
        return message.removesuffix(PADDING)

    def _normal_message(self, path: str, data: bytes) -> str:
        name = path.rpartition("/")[2]
        if name not in METHODS:
            return repr(data)
        message = METHODS[name].reply.FromString(data)
        self._normalise(message)
        return str(message)

    def _normalise(self, message: Message) -> None:
        if message.DESCRIPTOR.name == "UInt64Value":
            message.value = 1  # type: ignore[attr-defined] # UInt64Value has it: a figure that moves
        for descriptor, value in message.ListFields():
            if descriptor.message_type and descriptor.message_type.GetOptions().map_entry:
                self._normalise_map(value)
            elif descriptor.is_repeated:
                self._normalise_list(value)
            elif descriptor.message_type:
                self._normalise(value)
            elif descriptor.name in _TIMES:
                setattr(message, descriptor.name, 1)
            elif descriptor.type == FieldDescriptor.TYPE_STRING:
                setattr(message, descriptor.name, self._normal(value))
        if "timestamp" in message.DESCRIPTOR.fields_by_name:
            message.timestamp = 1  # type: ignore[attr-defined] # taken now and then, 0 before the first time

    def _normalise_map(self, values: Any) -> None:  # noqa: ANN401 - protobuf's containers have no common type
        for key in list(values):
            if isinstance(values[key], str):
                values[key] = self._normal(values[key])

    def _normalise_list(self, values: Any) -> None:  # noqa: ANN401
        items = list(values)
        for item in items:
            if isinstance(item, Message):
                self._normalise(item)
        ordered = sorted(items, key=str)
        copies = [_copy(item) if isinstance(item, Message) else item for item in ordered]
        del values[:]
        values.extend(copies)

    def _normal(self, text: str) -> str:
        text = _ID.sub(lambda match: self._names.setdefault(match[0], f"ID{len(self._names)}"), text)
        return _VARIABLE.sub("VARIABLE", _TOKEN.sub(r"\1TOKEN", text))


async def _until_end(call: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    try:
        async for message in call:
            yield message
    except grpc.aio.AioRpcError:
        return  # the call itself says how it ended


def _copy(message: Reply) -> Reply:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
