"""What the runtime says: sandboxes and containers."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from criproxy.cri import api_pb2 as api
from lab.chaos.checker.cgroups import CpuSet, parse


@dataclass(frozen=True, slots=True)
class Row:
    """A container in the database."""

    key: str
    title: str
    """POD/CONTAINER."""
    state: str
    pending: bool
    """It has a reservation, and no id of the runtime yet."""
    cpus: CpuSet | None
    """What was granted; None without a grant."""
    exclusive: CpuSet
    applied: tuple[CpuSet, CpuSet] | None
    """CPUs and memory nodes."""


_QUERY = """
SELECT c.key, c.pod_name, c.name, c.state, c.reservation, g.cpus, g.exclusive, a.cpus, a.mems
FROM containers c LEFT JOIN grants g ON g.key = c.key LEFT JOIN applied a ON a.key = c.key
"""


@dataclass(frozen=True, slots=True)
class Saved:
    """All that is compared."""

    rows: dict[str, Row]
    pods: set[str]
    """Ids of sandboxes."""
    kept: dict[str, dict[str, CpuSet]] = field(default_factory=dict)
    """By uid of the pod and name of a container that has ended: the CPUs that it had."""


def read_store(path: Path) -> Saved:
    """Read it in one transaction; sqlite3.Error if that cannot be done now."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        rows = [_row(row) for row in connection.execute(_QUERY)]
        pods = {key for (key,) in connection.execute("SELECT key FROM pods")}
        kept = {uid: _kept(text) for uid, text in connection.execute("SELECT key, cpus FROM kept")}
    return Saved({row.key: row for row in rows}, pods, kept)


def _kept(text: str) -> dict[str, CpuSet]:
    return {name: parse(cpus) for name, cpus in json.loads(text).items()}


def _row(row: tuple[Any, ...]) -> Row:
    key, pod, name, state, reservation, *sets = row
    cpus, exclusive, applied_cpus, applied_mems = (None if text is None else parse(text) for text in sets)
    return Row(
        key=key,
        title=f"{pod}/{name}",
        state=state,
        pending=key == reservation,
        cpus=cpus,
        exclusive=exclusive or frozenset(),
        applied=None if applied_cpus is None or applied_mems is None else (applied_cpus, applied_mems),
    )


_TIMEOUT_S = 5.0


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
        listed = api.ListContainersResponse.FromString(self._list("ListContainers")).containers
        return {
            each.id: Listed(
                id=each.id,
                sandbox=each.pod_sandbox_id,
                pod=each.labels.get("io.kubernetes.pod.name", ""),
                name=each.metadata.name,
                attempt=each.metadata.attempt,
                state=each.state,
            )
            for each in listed
        }

    def sandboxes(self) -> Sequence[api.PodSandbox]:
        """All sandboxes; Unavailable."""
        return api.ListPodSandboxResponse.FromString(self._list("ListPodSandbox")).items

    def _list(self, method: str) -> bytes:
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"unix://{self._socket}", options=options) as channel:
            call: Callable[..., bytes] = channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")
            try:
                return call(b"", timeout=_TIMEOUT_S)
            except grpc.RpcError as error:
                raise Unavailable(str(error)) from error
