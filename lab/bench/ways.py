"""A way to the runtime: a gRPC channel of raw bytes, and the process whose CPU and memory it costs."""

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc
from google.protobuf.message import Message

from criproxy.cri.methods import METHODS

DIRECT = "direct"
"""The way that all others are compared with."""

Call = Callable[[bytes], bytes]

_CPU_CLOCK = 2
"""CPUCLOCK_SCHED in the kernel's clock ids: CPU time of a whole process, ended threads included."""
_UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process occupies, in bytes: resident, and what nobody else uses."""

    rss_bytes: int
    uss_bytes: int


def memory_of(pid: int) -> Memory:
    """Read the memory of a process from /proc."""
    kib: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value, *_ = line.split()
        kib[name.rstrip(":")] = int(value)
    return Memory(kib["Rss"] << 10, kib["Private_Clean"] + kib["Private_Dirty"] << 10)


def cpu_ns_of(pid: int) -> int:
    """CPU time that a process has used, all threads, to the nanosecond."""
    return time.clock_gettime_ns(~pid << 3 | _CPU_CLOCK)


class Way:
    """Calls CRI at a socket. Nothing is serialised or parsed here, so only transport is measured.

    Args:
        name: what the table calls it; `DIRECT` is the runtime itself.
        path: the unix socket.
        pid: the process behind it; asked of the kernel where it is not given.
    """

    def __init__(self, name: str, path: Path, pid: int | None = None) -> None:
        self.name = name
        self.path = path
        self.pid = listener_pid(path) if pid is None else pid
        self._channel = grpc.insecure_channel(f"unix:{path}", options=_UNLIMITED)
        self._methods: dict[str, grpc.UnaryUnaryMultiCallable[bytes, bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def bytes_call(self, method: str) -> Call:
        """Return a function that calls *method*, such as ``Version``, with a serialised message."""
        multi = self._multi(method)
        return lambda request: multi(request, timeout=_TIMEOUT_S, wait_for_ready=True)

    def begin(self, method: str, request: bytes, *, wait_for_ready: bool = False) -> "grpc.Future[bytes]":
        """Start a call without waiting for its answer."""
        return self._multi(method).future(request, timeout=_TIMEOUT_S, wait_for_ready=wait_for_ready)

    def call(self, method: str, request: Message) -> Message:
        """Call *method* with messages, where time does not matter."""
        return METHODS[method].reply.FromString(self.bytes_call(method)(request.SerializeToString()))

    def cpu_ns(self) -> int:
        """CPU time of the process behind the socket."""
        return cpu_ns_of(self.pid)

    def memory(self) -> Memory:
        """Memory of the process behind the socket."""
        return memory_of(self.pid)

    def _multi(self, method: str) -> "grpc.UnaryUnaryMultiCallable[bytes, bytes]":
        if method not in self._methods:
            self._methods[method] = self._channel.unary_unary(METHODS[method].paths[0])
        return self._methods[method]


def listener_pid(path: Path) -> int:
    """The process that listens at *path*, as it was when it began to."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.connect(str(path))
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid
