"""The node at one moment, with what the controller knows beside it: what the views are made of."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.notices import Notice, Refusal, Trouble
from criproxy.policy.api import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The node at one moment, with what the controller knows beside it."""

    node: Node
    policy: str = ""
    """Its name in the policy file; empty where it is not known."""
    follows: bool = True
    """Whether calls are held or watched, so that the node knows all containers."""
    reserved: CpuSet = NO_CPUS
    reserved_later: Mapping[str, CpuSet] = field(default_factory=dict)
    """Which of *reserved* were exclusive to pods already when the policy file began to reserve them."""
    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    """By container key."""
    starting: Collection[str] = ()
    """Keys of the containers whose start is in flight."""
    notices: Sequence[Notice] = ()
    refusals: Sequence[Refusal] = ()
    """Of creates, the newest first."""
    refusals_omitted: int = 0
    """How many more there are."""
    resizes: Mapping[str, Refusal] = field(default_factory=dict)
    """What the kubelet was told of refused resizes, by container key."""
    placer: Policy | None = None
    """The policy in force; None where it is not known."""
    lacking: Callable[[], Sequence[str]] = tuple
    """Sentences on what the policy file names and the machine has not; may take long."""
