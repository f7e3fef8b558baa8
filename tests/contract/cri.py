"""What a kubelet says: CRI messages as plain values, sent by raw gRPC. The only place with generated messages."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict

from criproxy.cri import api_pb2

LIMIT_S = 60.0
IMAGE = {"image": "criproxy.test/busybox:1"}
"""The image that the emulated runtime has."""
Values = dict[str, Any]


class Refused(Exception):
    """A call failed; `code` is the name of its gRPC status."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details


class Cri:
    """One connection to the socket *path*."""

    def __init__(self, path: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix://{path}", options=[("grpc.default_authority", "localhost")])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def call(self, method: str, request: Mapping[str, Any]) -> Values:
        """Make a call of ``RuntimeService``; raises `Refused`."""
        message = ParseDict(dict(request), getattr(api_pb2, f"{method}Request")(), ignore_unknown_fields=True)
        send: grpc.UnaryUnaryMultiCallable[bytes, bytes]
        send = self._channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")
        try:
            answer = send(message.SerializeToString(), timeout=LIMIT_S)
        except grpc.RpcError as error:
            raise Refused(error.code().name, error.details() or "") from error
        reply = getattr(api_pb2, f"{method}Response").FromString(answer)
        found: Values = MessageToDict(reply, preserving_proto_field_name=True)
        return found

    def sandbox(self, pod: Values) -> str:
        """Run the sandbox of *pod*; returns its id."""
        return str(self.call("RunPodSandbox", {"config": pod["sandbox"]})["pod_sandbox_id"])

    def create(self, pod: Values, sandbox_id: str) -> str:
        """Create the container of *pod*; returns its id."""
        request = {"pod_sandbox_id": sandbox_id, "config": pod["container"], "sandbox_config": pod["sandbox"]}
        return str(self.call("CreateContainer", request)["container_id"])

    def run(self, pod: Values) -> str:
        """Run *pod*; returns the id of its container."""
        container_id = self.create(pod, self.sandbox(pod))
        self.call("StartContainer", {"container_id": container_id})
        return container_id


def pod_of(
    name: str,
    cpu_milli: int = 0,
    limit_milli: int = 0,
    memory_mib: int = 0,
    annotations: Mapping[str, str] | None = None,
    **container: object,
) -> Values:
    """Return the messages of a pod with one container ``main``; Guaranteed if it has a limit and memory.

    Args:
        name: of the pod, in namespace ``default``.
        cpu_milli: the CPU request, of a Burstable pod.
        limit_milli: the CPU limit and request.
        memory_mib: the memory limit.
        annotations: of the pod.
        container: further fields of the container's message.
    """
    uid = f"00000000-0000-4000-8000-{int.from_bytes(name.encode()[:6], 'big'):012x}"
    labels = {
        f"io.kubernetes.pod.{key}": text for key, text in {"name": name, "namespace": "default", "uid": uid}.items()
    }
    guaranteed, burstable = bool(limit_milli and memory_mib), bool(cpu_milli or limit_milli or memory_mib)
    resources = {
        "cpu_period": 100_000,
        "cpu_quota": limit_milli * 100,
        "cpu_shares": (cpu_milli or limit_milli) * 1024 // 1000 or 2,
        "memory_limit_in_bytes": memory_mib << 20,
    }
    adjustment = -997 if guaranteed else 999 if burstable else 1000
    parent = f"/kubepods/{'' if guaranteed else 'burstable/' if burstable else 'besteffort/'}pod{uid}"
    return {
        "sandbox": {
            "metadata": {"name": name, "namespace": "default", "uid": uid},
            "labels": labels,
            "annotations": annotations or {},
            "linux": {"cgroup_parent": parent, "overhead": {}, "resources": resources},
        },
        "container": {
            "metadata": {"name": "main"},
            "image": IMAGE,
            "labels": {**labels, "io.kubernetes.container.name": "main"},
            "annotations": {"io.kubernetes.container.restartCount": "0"},
            "linux": {"resources": {**resources, "oom_score_adj": adjustment}},
            **container,
        },
    }
