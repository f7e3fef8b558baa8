"""The status of a NodePlacement: what the daemon and the rollout say, as one small object."""

from dataclasses import dataclass
from typing import Literal

Phase = Literal["Applied", "Trying", "RolledBack", "Refused", "LastGood", "Released", "Bypassed", "Waiting", "Unknown"]
"""Of a node: what is in force. Waiting: for its turn in a rollout; Unknown: the daemon does not answer."""


@dataclass(frozen=True, slots=True)
class RolloutState:
    """What the rollout of a NodePolicy does on this node; all empty: no NodePolicy selects it."""

    policy_name: str = ""
    """Of the NodePolicy that selects this node."""
    generation: int = 0
    """Of its spec."""
    hash: str = ""
    """Of its policy."""
    phase: Phase | Literal[""] = ""
    """Applied, Trying, RolledBack, Refused or Waiting; "" if no NodePolicy selects the node."""
    message: str = ""
    """Why, in a sentence."""
