"""What the runtime says: sandboxes and containers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc

from criproxy.cri import api_pb2 as api

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
