"""Which calls failed in our handlers, and whom they were about: told in `status` and ``--check`` for an hour."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from criproxy.control.failures import Failures
from criproxy.control.node.state import NodeState
from criproxy.cri.about import about
from criproxy.errors import CriproxyError
from criproxy.wire.calls import Call, Rule, Table

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FailedCalls:
    """Puts into words what failed."""

    manager: NodeState
    failures: Failures

    def told(self, table: Table) -> Table:
        """*table* with watched and edited calls whose handlers' failures are remembered, and raised as before.

        Those of held calls come to `Controller.on_error`, which knows what becomes of them.
        """
        return {path: self._rule(rule) for path, rule in table.items()}

    def call(self, call: Call, error: Exception, outcome: str = "", message: bytes | None = None) -> None:
        """Remember that our handler of *call* failed.

        Args:
            call: whose request tells whom it is about.
            error: why.
            outcome: what became of it.
            message: its reply, where only that tells.
        """
        who = self._about(call, message)
        of = f" of {who}" if who else ""
        why = str(error) if isinstance(error, CriproxyError) else repr(error)
        after = f"; {outcome}" if outcome else ""
        self.failures.add("call", f"criproxy failed at {call.method.rpartition('/')[2]}{of}: {why}{after}")

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
            with self.failures.harmless("a failure"):
                self.call(call, error, message=message)
            raise  # the data plane counts and logs it

    def _about(self, call: Call, reply: bytes | None) -> str:
        """The name of the container or pod that *call* is about; empty where nothing tells."""
        node, manager = self.manager.node, self.manager
        if call.request is not None:
            who = about(call.method, call.request)
        else:
            who = about(call.method, reply or b"", is_reply=True)
        container = node.containers.get(manager.resolve(who.container_id))
        pod = node.pods.get(manager.resolve_pod(who.sandbox_id))
        return who.title or (container.title if container else pod.title if pod else "")
