"""Which calls failed in our handlers, and of which container or pod: in `status` and ``--check`` for an hour."""

from criproxy.control.context import Context
from criproxy.control.node.state import NodeState
from criproxy.cri.about import about
from criproxy.errors import CriproxyError
from criproxy.wire.calls import Call


def note_failed(
    context: Context, call: Call, error: Exception, outcome: str = "", message: bytes | None = None
) -> None:
    """Remember that our handler of *call* failed; that fails itself without consequences.

    Args:
        context: of the handler.
        call: whose request names its container or pod.
        error: why.
        outcome: what became of it.
        message: its reply, where only that names it.
    """
    with context.failures.harmless("a failure"):
        of = f" of {title}" if (title := _title(context.state, call, message)) else ""
        why = str(error) if isinstance(error, CriproxyError) else repr(error)
        after = f"; {outcome}" if outcome else ""
        context.failures.add("call", f"criproxy failed at {call.method.rpartition('/')[2]}{of}: {why}{after}")


def _title(state: NodeState, call: Call, reply: bytes | None) -> str:
    """The name of the container or pod of *call*; empty where that cannot be known."""
    is_reply = call.request is None
    named = about(call.method, (reply or b"") if is_reply else call.request or b"", is_reply=is_reply)
    container = state.node.containers.get(state.resolve(named.container_id))
    pod = state.node.pods.get(state.resolve_pod(named.sandbox_id))
    return named.title or (container.title if container else pod.title if pod else "")
