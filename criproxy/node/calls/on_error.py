"""How held calls continue after their handler failed; the kubelet never gets the text of an unexpected exception."""

from collections.abc import Callable
from dataclasses import dataclass

from criproxy.cri import api_pb2 as api
from criproxy.cri import utf8
from criproxy.cri.methods import BY_PATH
from criproxy.cri.translate import UnreadableMessage, has_cpuset
from criproxy.errors import CriproxyError, StatusCode, StoreError, for_kubelet
from criproxy.model.record import Kind
from criproxy.model.workload import Container
from criproxy.node.calls.create import Creates
from criproxy.node.calls.start import Starts
from criproxy.node.context import Context
from criproxy.node.devices.guard import DeviceFault
from criproxy.node.record.state import NodeState
from criproxy.node.settings import OnError
from criproxy.node.sync.resync import NotReady
from criproxy.wire.calls import Call, Proceed, Refuse, Verdict


@dataclass(frozen=True, slots=True)
class CallFallback:
    """Answers such calls according to `OnError`; the code that failed does not run again."""

    context: Context
    creates: Creates
    starts: Starts
    is_ready: Callable[[], bool]

    async def on_error(self, call: Call, message: bytes | None, error: Exception) -> Verdict:
        """Decide about a held call whose handler failed, or whose message cannot be read (None).

        With every setting of `OnError`, no container starts on exclusive CPUs of another: StartContainer continues only
        if nothing has to be done before it, otherwise the kubelet repeats it; and a container whose create continues is
        adopted before its start.
        """
        container = self.creates.container_of(call, message)
        try:
            verdict: Verdict = await self._verdict(call, message, error)
        except Exception as second:
            note_failed(self.context, call, second, "it was refused")
            event = "call not handled after a failure"
            self.context.log.error(event, method=call.method, exc_info=second)  # noqa: TRY400 (as in the other logs)
            self.creates.abandon(call)
            verdict = _refusal(error)
        with self.context.failures.harmless("what became of a call"):
            self._report(call, container, error, verdict)
        return verdict

    def _report(self, call: Call, container: Container | None, error: Exception, verdict: Verdict) -> None:
        context, refused = self.context, isinstance(verdict, Refuse)
        # The notice about devices reports the former; in the latter case, the runtime has not answered.
        if not isinstance(error, DeviceFault | NotReady):
            shares = "the call continues, without a place for the container" if container else "the call continues"
            note_failed(context, call, error, "it was refused" if refused else shares)
        counters = context.counters
        counters.fallbacks["refuse" if refused else context.settings.on_error.value] += 1
        if isinstance(verdict, Refuse):
            counters.refusals[verdict.code.name] += 1
        if container and refused:
            context.state.note(container, Kind.REFUSED, for_kubelet(error))
        elif container:
            context.state.note(container, Kind.PASSED, f"{for_kubelet(error)}; criproxy adopts it afterwards")
        is_ours = isinstance(error, CriproxyError)
        text, traceback = (str(error), {}) if is_ours else (f"criproxy failed: {error!r}", {"exc_info": error})
        context.log.error("call not handled", method=call.method, error=text, refused=refused, **traceback)

    async def _verdict(self, call: Call, message: bytes | None, error: Exception) -> Verdict:
        way, method = self.context.settings.on_error, BY_PATH[call.method].name
        if way is OnError.REFUSE or isinstance(error, NotReady) or not self.is_ready():
            return _refusal(error)
        readable = message if not isinstance(error, UnreadableMessage) else None
        if readable is None:
            # Runtimes may understand what criproxy cannot read, so the device rules would not apply to it.
            passes = way is OnError.PASS and method == "CreateContainer" and self.context.settings.devices is None
            return Proceed() if passes else _refusal(error)
        if method == "CreateContainer":
            return await self.creates.without_place(call, readable, shared=way is OnError.SHARED)
        if method == "StartContainer":
            continues = await self.starts.may_skip_barrier(call, readable)
        else:
            continues = way is OnError.PASS and method == "UpdateContainerResources" and not has_cpuset(readable)
        return Proceed() if continues else _refusal(error)


def _refusal(error: Exception) -> Refuse:
    """Return the status of a call that cannot continue because of *error*; the kubelet retries."""
    return Refuse(error.code if isinstance(error, CriproxyError) else StatusCode.UNAVAILABLE, for_kubelet(error))


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
