"""What the runtime says: sandboxes and containers, decoded here from the bytes of two list calls."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc

CREATED, RUNNING, EXITED = 0, 1, 2
"""ContainerState of CRI."""
_TIMEOUT_S = 5.0
_POD_NAME = b"io.kubernetes.pod.name"


@dataclass(frozen=True, slots=True)
class Listed:
    """A container in a list."""

    id: str
    sandbox: str
    pod: str
    name: str
    attempt: int
    state: int

    @property
    def title(self) -> str:
        """POD/CONTAINER, as the journal has it."""
        return f"{self.pod}/{self.name}"


class Unavailable(Exception):
    """The runtime does not answer; the text says why."""


class Runtime:
    """Asks the runtime at a socket."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def containers(self) -> dict[str, Listed]:
        """All containers, by id; Unavailable."""
        items = _messages(self._list("ListContainers"), 1)
        return {one.id: one for one in map(_container, items)}

    def sandboxes(self) -> set[str]:
        """The ids of all sandboxes; Unavailable."""
        return {_text(item, 1) for item in _messages(self._list("ListPodSandbox"), 1)}

    def ready(self) -> dict[str, str]:
        """By uid of the pod the name of each that has a sandbox which is ready; Unavailable."""
        found: dict[str, str] = {}
        for item in _messages(self._list("ListPodSandbox"), 1):
            metadata = next(_messages(item, 2), b"")
            if not any(number == 3 and value for number, value in fields(item)):  # 0 is ready, and not written
                found[_text(metadata, 2)] = _text(metadata, 1)
        return found

    def _list(self, method: str) -> bytes:
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"unix://{self._socket}", options=options) as channel:
            call: Callable[..., bytes] = channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")
            try:
                return call(b"", timeout=_TIMEOUT_S)
            except grpc.RpcError as error:
                raise Unavailable(str(error)) from error


def _container(item: bytes) -> Listed:
    metadata = next(_messages(item, 3), b"")
    labels = {_text(pair, 1): _text(pair, 2) for pair in _messages(item, 8)}
    return Listed(
        id=_text(item, 1),
        sandbox=_text(item, 2),
        pod=labels.get(_POD_NAME.decode(), ""),
        name=_text(metadata, 1),
        attempt=next((value for number, value in fields(metadata) if number == 2 and isinstance(value, int)), 0),
        state=next((value for number, value in fields(item) if number == 6 and isinstance(value, int)), 0),
    )


def _messages(data: bytes, wanted: int) -> Iterator[bytes]:
    return (value for number, value in fields(data) if number == wanted and isinstance(value, bytes))


def _text(data: bytes, wanted: int) -> str:
    return next(_messages(data, wanted), b"").decode()


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a protobuf message; ValueError for what is none."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
                yield tag >> 3, value
            case 2:
                size, at = _varint(data, at)
                yield tag >> 3, data[at : at + size]
                at += size
            case 1:
                at += 8
            case 5:
                at += 4
            case kind:
                raise ValueError(f"wire type {kind} at byte {at}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
