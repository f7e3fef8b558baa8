"""One step with the policy in force; if that fails at an event that cannot be refused, with the fallback policy."""

from dataclasses import dataclass, field

from criproxy.errors import CriproxyError, Fault, Refused
from criproxy.model.node import Node
from criproxy.node.counters import Counters
from criproxy.placement.checked_policy import PolicyFault
from criproxy.placement.decision import Decision
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerResized, Event, can_be_refused, kind_of
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback
from criproxy.process.failures import Failures
from criproxy.process.logger import Log


class PolicyFailed(Fault):
    """A policy raised an exception that policies must not raise, which is the cause. The node is unchanged."""

    briefly = "the policy failed"


@dataclass(slots=True)
class GuardedStep:
    """`step` may run in a thread; `report` counts and logs its failures on the event loop, to which those belong."""

    _raised: bool = False
    """Whether the policy raised an exception that policies must not raise."""
    _faults: int = 0
    """How many of its answers broke a rule."""
    _texts: list[str] = field(default_factory=list)
    """One sentence for each failure that is shown."""
    _unmoved: tuple[str, Exception] | None = None
    """The kind of the event and the policy's exception, if no container moved because of it."""

    def step(self, node: Node, event: Event, policy: Policy, *, is_new: bool) -> Decision:
        """Return the decision about *event*.

        Args:
            node: the state before the event.
            event: what happened or is about to happen.
            policy: the policy that decides.
            is_new: whether the policy comes into force with this event, so that it can be refused.

        Raises:
            Refused: the policy has no place, or does not understand the request.
            PolicyFailed: the policy failed at an event that can be refused; at other events, no container moves.
        """
        try:
            decision = step(node, event, policy)
        except Exception as error:
            if isinstance(error, Refused) and isinstance(event, ContainerCreating | ContainerResized):
                raise  # an answer, and no failure
            self._raised, self._faults = True, int(isinstance(error, PolicyFault))
            text = str(error) if isinstance(error, CriproxyError) else repr(error)
            if not can_be_refused(event) and not is_new:
                self._texts.append(f"the policy failed{_about(node, event)}, and no container moved: {text}")
                self._unmoved = kind_of(event), error
                return step(node, event, Fallback(options_of(policy)))
            if isinstance(error, PolicyFault):
                self._texts.append(text)
            if isinstance(error, CriproxyError):
                raise
            raise PolicyFailed(f"the policy failed: {text}") from error
        if decision.faults:
            self._faults = len(decision.faults)
            self._texts.append(f"the policy failed{_about(node, event)}: {decision.faults[0]}")
        return decision

    def report(self, counters: Counters, failures: Failures, log: Log) -> None:
        """Count and log the failures of `step`. Call this in the event loop's thread."""
        counters.policy_failures += self._raised
        counters.policy_faults += self._faults
        for text in self._texts:
            failures.add("policy", text)
        if self._unmoved:
            kind, error = self._unmoved
            log.error("policy failed; no container moves", event_kind=kind, exc_info=error)


def _about(node: Node, event: Event) -> str:
    """Return which container or pod *event* is about, to end a sentence; only the kind for the whole node."""
    container, key = getattr(event, "container", None), getattr(event, "key", "")
    known = container or node.containers.get(key) or node.pods.get(key)
    return f" at {known.title} ({kind_of(event)})" if known else f" ({kind_of(event)})"
