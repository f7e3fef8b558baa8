"""One step of the engine with the policy in force; with the fallback where that fails at what has happened already."""

from dataclasses import dataclass, field

from criproxy.engine.checked_policy import PolicyFault
from criproxy.engine.decision import Decision
from criproxy.engine.events import ContainerCreating, ContainerResized, Event, can_be_refused, kind_of
from criproxy.engine.fallback import Fallback
from criproxy.engine.step import step
from criproxy.errors import CriproxyError, Fault, Refused
from criproxy.model.node import Node
from criproxy.observe.counters import Counters
from criproxy.observe.failures import Failures
from criproxy.observe.logger import Log
from criproxy.policy.api import Policy
from criproxy.policy.options import options_of


class PolicyFailed(Fault):
    """A policy raised what no policy may; the cause is what it raised. The node is as before."""

    briefly = "the policy failed"


@dataclass(slots=True)
class Asking:
    """Asks a policy about one event; where it fails, who cannot be refused goes by the fallback.

    `step` may run in a thread. What it has found is counted and told by `report` on the event loop, to which counters,
    failures and the log belong.
    """

    _raised: int = 0
    """How often the policy raised what no policy may."""
    _faults: int = 0
    """How many of its answers broke a rule."""
    _texts: list[str] = field(default_factory=list)
    """One sentence for each failure that is shown."""
    _unmoved: tuple[str, Exception] | None = None
    """The kind of the event, and what the policy raised, where nobody moved for that."""

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
            self._raised += 1
            if isinstance(error, PolicyFault):
                self._faults += 1
                self._texts.append(str(error))
            if not can_be_refused(event) and not is_new:
                self._texts.append(f"the policy failed{_about(node, event)}, and no container moved: {error!r}")
                self._unmoved = kind_of(event), error
                return step(node, event, Fallback(options_of(policy)))
            if isinstance(error, CriproxyError):
                raise
            raise PolicyFailed(f"the policy failed: {error!r}") from error
        if decision.faults:
            self._faults += len(decision.faults)
            self._texts.append(f"the policy failed{_about(node, event)}: {decision.faults[0]}")
        return decision

    def report(self, counters: Counters, failures: Failures, log: Log) -> None:
        """Count and tell what `step` has found; for the event loop's thread."""
        counters.policy_failures += self._raised
        counters.policy_faults += self._faults
        for text in self._texts:
            failures.add("policy", text)
        if self._unmoved:
            kind, error = self._unmoved
            log.error("policy failed; no container moves", event_kind=kind, exc_info=error)


def _about(node: Node, event: Event) -> str:
    """Of which container or pod *event* tells, as an end of a sentence; empty where it is about the whole node."""
    container, key = getattr(event, "container", None), getattr(event, "key", "")
    known = container or node.containers.get(key) or node.pods.get(key)
    return f" at {known.title} ({kind_of(event)})" if known else f" ({kind_of(event)})"
