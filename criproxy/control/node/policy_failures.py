"""One step of the engine with the policy in force; with the fallback where that fails at what has happened already."""

from dataclasses import dataclass

from criproxy.control.failures import Failures
from criproxy.control.settings import Log
from criproxy.engine.decision import Decision
from criproxy.engine.events import ContainerCreating, ContainerResized, Event, can_be_refused, kind_of
from criproxy.engine.fallback import Fallback
from criproxy.engine.guard import PolicyFault
from criproxy.engine.step import step
from criproxy.errors import CriproxyError, Fault, Refused
from criproxy.model.node import Node
from criproxy.observe.counters import Counters
from criproxy.policy.api import Policy
from criproxy.policy.options import options_of


class PolicyFailed(Fault):
    """A policy raised what no policy may; the cause is what it raised. The node is as before."""

    briefly = "the policy failed"


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks policies; where one fails, it is counted and reported, and who cannot be refused goes by the fallback."""

    counters: Counters
    failures: Failures
    log: Log

    def step(self, node: Node, event: Event, policy: Policy, *, is_new: bool) -> Decision:
        """What *event* leads to.

        Args:
            node: the state before.
            event: what happened or is about to.
            policy: asked.
            is_new: it comes into force with this event, or is refused.

        Raises:
            Refused: the policy has no place, or does not understand what is asked.
            PolicyFailed: it failed, at what can still be refused; at anything else, nobody moves.
        """
        try:
            decision = step(node, event, policy)
        except Exception as error:
            if isinstance(error, Refused) and isinstance(event, ContainerCreating | ContainerResized):
                raise  # an answer, and no failure
            self.counters.policy_failures += 1
            if isinstance(error, PolicyFault):
                self.counters.policy_faults += 1
                self.failures.add("policy", str(error))
            if not can_be_refused(event) and not is_new:
                text = f"the policy failed{_about(node, event)}, and nobody moved: {error!r}"
                self.failures.add("policy", text)
                self.log.error("policy failed; no container moves", event_kind=kind_of(event), exc_info=error)  # noqa: TRY400 (a `Log` has no more)
                return step(node, event, Fallback(options_of(policy)))
            if isinstance(error, CriproxyError):
                raise
            raise PolicyFailed(f"the policy failed: {error!r}") from error
        if decision.faults:
            self.counters.policy_faults += len(decision.faults)
            self.failures.add("policy", f"the policy failed{_about(node, event)}: {decision.faults[0]}")
        return decision


def _about(node: Node, event: Event) -> str:
    """Of which container or pod *event* tells, as an end of a sentence; empty where it is about the whole node."""
    container, key = getattr(event, "container", None), getattr(event, "key", "")
    known = container or node.containers.get(key) or node.pods.get(key)
    return f" at {known.title} ({kind_of(event)})" if known else f" ({kind_of(event)})"
