"""Reports calls that failed in our handlers, and their container or pod, in `status` and ``--check`` for an hour."""

from dataclasses import dataclass

from criproxy.cri import api_pb2 as api
from criproxy.cri import utf8
from criproxy.cri.methods.methods import BY_PATH
from criproxy.errors import CriproxyError, StoreError
from criproxy.node.context import Context
from criproxy.node.record.state import NodeState
from criproxy.wire.calls import Call


def note_failed(
    context: Context, call: Call, error: Exception, outcome: str = "", message: bytes | None = None
) -> None:
    """Remember that our handler of *call* failed; an error here has no consequences.

    Not if the state could not be stored: the notice `store` reports the disk as long as it fails, and criproxy works.

    Args:
        context: the context of the handler.
        call: the call; its request names the container or pod.
        error: why the handler failed.
        outcome: how the call continued.
        message: the reply, if only that names the container or pod.
    """
    if isinstance(error, StoreError):
        return
    with context.failures.harmless("a failure"):
        of = f" of {title}" if (title := _title(context.state, call, message)) else ""
        why = str(error) if isinstance(error, CriproxyError) else repr(error)
        after = f"; {outcome}" if outcome else ""
        text = f"criproxy failed at {call.method.rpartition('/')[2]}{of}: {why}{after}"
        context.failures.add("call", text, namespace=title.partition("/")[0])


def _title(state: NodeState, call: Call, reply: bytes | None) -> str:
    """Return the name of the container or pod of *call*; empty if it is unknown."""
    is_reply = call.request is None
    named = about(call.method, (reply or b"") if is_reply else call.request or b"", is_reply=is_reply)
    container = state.node.containers.get(state.resolve(named.container_id))
    pod = state.node.pods.get(state.resolve_pod(named.sandbox_id))
    return named.title or (container.title if container else pod.title if pod else "")


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
