"""Which calls failed in our handlers, and of which container or pod: in `status` and ``--check`` for an hour."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from criproxy.control.context import Context
from criproxy.cri.about import about
from criproxy.errors import CriproxyError
from criproxy.wire.calls import Call, Rule, Table

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FailedCalls:
    """Puts into words what failed."""

    context: Context

    def remembered(self, table: Table) -> Table:
        """*table* with watched and edited calls whose handlers' failures are remembered, and raised as before.

        Those of held calls come to `Controller.on_error`, which knows what becomes of them.
        """
        return {path: self._rule(rule) for path, rule in table.items()}

    def add(self, call: Call, error: Exception, outcome: str = "", message: bytes | None = None) -> None:
        """Remember that our handler of *call* failed.

        Args:
            call: whose request names its container or pod.
            error: why.
            outcome: what became of it.
            message: its reply, where only that names it.
        """
        of = f" of {title}" if (title := self._title(call, message)) else ""
        why = str(error) if isinstance(error, CriproxyError) else repr(error)
        after = f"; {outcome}" if outcome else ""
        self.context.failures.add("call", f"criproxy failed at {call.method.rpartition('/')[2]}{of}: {why}{after}")

    def _rule(self, rule: Rule) -> Rule:
        done, each, edit = rule.done, rule.each, rule.edit
        return replace(
            rule,
            done=done and (lambda call, outcome: self._try(call, None, lambda: done(call, outcome))),
            each=each and (lambda call, message: self._try(call, message, lambda: each(call, message))),
            edit=edit and (lambda call, message: self._try(call, message, lambda: edit(call, message))),
        )

    def _try(self, call: Call, message: bytes | None, handle: Callable[[], T]) -> T:
        try:
            return handle()
        except Exception as error:
            with self.context.failures.harmless("a failure"):
                self.add(call, error, message=message)
            raise  # the data plane counts and logs it

    def _title(self, call: Call, reply: bytes | None) -> str:
        """The name of the container or pod of *call*; empty where that cannot be known."""
        state, is_reply = self.context.state, call.request is None
        named = about(call.method, (reply or b"") if is_reply else call.request or b"", is_reply=is_reply)
        container = state.node.containers.get(state.resolve(named.container_id))
        pod = state.node.pods.get(state.resolve_pod(named.sandbox_id))
        return named.title or (container.title if container else pod.title if pod else "")
