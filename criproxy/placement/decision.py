"""The result of an event: the new state, and the updates for other containers."""

from dataclasses import dataclass

from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.text.reason import Reason
from criproxy.placement.events import Event
from criproxy.placement.policies.api import Policy


@dataclass(frozen=True, slots=True)
class Update:
    """A container that exists in the runtime and needs another place.

    It has the final grant of the container. Which CPUs it may get at the moment of sending depends on the containers
    that have left theirs by then, and on later decisions: the controller decides that.
    """

    key: str
    grant: Grant


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of the engine for one event."""

    node: Node
    """The state from now on."""
    updates: tuple[Update, ...] = ()
    """Containers that lose CPUs come first, then those that only get some."""
    reasons: tuple[Reason, ...] = ()
    """Why; empty if there was nothing to decide."""
    key: str | None = None
    """The container that the event is about. For a create, the key that holds its place: it differs from the event's
    key if this create repeats one that is in flight or of unknown outcome. Then the place belongs to the earlier one:
    confirm with this key, and report a failure with the event's own key (which releases nothing)."""

    faults: tuple[str, ...] = ()
    """A sentence for each answer of a policy that was invalid and not used; see `placement.checked_policy`."""
    in_bypass: bool = False
    """Whether it was made during an automatic bypass, without asking the policy."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """The texts of the reasons."""
        return tuple(reason.text for reason in self.reasons)

    @property
    def grant(self) -> Grant | None:
        """The grant of the container that the event is about; None if it has none or the policy leaves it alone."""
        return None if self.key is None else self.node.grants.get(self.key)

    def moving(self, before: Node) -> tuple[Update, ...]:
        """Return the updates that change CPUs or memory from what they are on the node *before*.

        The others only tell the name of a pool, or a quota.
        """

        def moves(update: Update) -> bool:
            had = before.grants.get(update.key)
            return had is None or (had.cpus, had.mems) != (update.grant.cpus, update.grant.mems)

        return tuple(update for update in self.updates if moves(update))


@dataclass(frozen=True, slots=True)
class Step:
    """One event and its result."""

    event: Event
    before: Node
    result: Decision | Exception
    took_s: float
    at_s: float
    """When, in seconds since the epoch."""
    policy: Policy | None
    """The policy that was asked; None during an automatic bypass."""
