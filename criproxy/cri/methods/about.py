"""The pod or container that a message is about, for log lines about a failure."""

from dataclasses import dataclass

from criproxy.cri import api_pb2 as api
from criproxy.cri import utf8
from criproxy.cri.methods.methods import BY_PATH


@dataclass(frozen=True, slots=True)
class About:
    """Names or ids; empty if the message has none."""

    title: str = ""
    """NAMESPACE/POD/CONTAINER, or NAMESPACE/POD."""
    container_id: str = ""
    sandbox_id: str = ""


def about(path: str, message: bytes, *, is_reply: bool = False) -> About:
    """Return the pod or container of a request or reply *message* of a call with that path; empty if unreadable."""
    method = BY_PATH.get(path)
    if method is None:
        return About()
    try:
        read = utf8.parse(method.reply if is_reply else method.request, message)
    except Exception:  # noqa: BLE001 (protobuf has its own exceptions)
        return About()
    match read:
        case api.CreateContainerRequest(sandbox_config=sandbox, config=config):
            return About(f"{_pod(sandbox)}/{config.metadata.name}")
        case api.RunPodSandboxRequest(config=sandbox):
            return About(_pod(sandbox))
        case api.ContainerStatusResponse(status=status):
            return About(container_id=status.id)
    return About("", getattr(read, "container_id", ""), getattr(read, "pod_sandbox_id", ""))


def _pod(sandbox: api.PodSandboxConfig) -> str:
    return f"{sandbox.metadata.namespace}/{sandbox.metadata.name}"
