"""What an event leads to: the new state, and what has to be done to other containers."""

from dataclasses import dataclass

from criproxy.engine.events import Event
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.reason import Reason
from criproxy.policy.api import Policy


@dataclass(frozen=True, slots=True)
class Update:
    """A container that exists in the runtime and needs another place.

    It says where the container shall be in the end. Which CPUs it may be given at the moment of sending depends on who
    has given up theirs by then, and on later decisions: that is the controller's business.
    """

    key: str
    grant: Grant


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer of the engine to one event."""

    node: Node
    """The state from now on."""
    updates: tuple[Update, ...] = ()
    """Those that lose CPUs come first, then those that only get some."""
    reasons: tuple[Reason, ...] = ()
    """Why; empty where nothing was decided."""
    key: str | None = None
    """The container that the event is about. For a create: the key under which its place is held, which is another
    than the event's where this create repeats one that is in flight or of unknown outcome. Then the place belongs
    to the earlier one: confirm with this key, and report a failure under the event's own key (which frees nothing)."""

    faults: tuple[str, ...] = ()
    """A sentence for each answer of a policy that broke a rule and was not used; see `engine.checked_policy`."""
    in_bypass: bool = False
    """Whether it was made during an automatic bypass, without asking the policy."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """The texts of the reasons."""
        return tuple(reason.text for reason in self.reasons)

    @property
    def grant(self) -> Grant | None:
        """The place of the container that the event is about; None where it has none or the policy leaves it alone."""
        return None if self.key is None else self.node.grants.get(self.key)


@dataclass(frozen=True, slots=True)
class Step:
    """One event, and what came of it."""

    event: Event
    before: Node
    result: Decision | Exception
    took_s: float
    at_s: float
    """When, in seconds since the epoch."""
    policy: Policy | None
    """The one that was asked; None while the node is bypassed."""
