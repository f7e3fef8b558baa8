"""Pure values: what the rollout on one node knows, remembers, and does next."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from criproxy.agent import bypass_of
from criproxy.agent.objects.placement import RolloutState
from criproxy.agent.rollout.choose import Choice
from criproxy.model.text.sources import node_policy_of

OF_WORKLOADS = frozenset({"over-quota", "undersized"})
"""Kinds of problems that a pod brings about under any policy, by its use of a card or a resize for which there is no
room: else every tenant could stop the rollouts of a cluster, and first installations."""


def problems_of(view: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the problems in an answer to the command ``agent``, without those that pods bring about."""
    of_workloads = {str(each["text"]) for each in view.get("found") or () if each["kind"] in OF_WORKLOADS}
    return tuple(each for each in map(str, view.get("problems") or ()) if each not in of_workloads)


@dataclass(frozen=True, slots=True)
class Pace:
    """Times and rates of a rollout."""

    keep_before_s: float = 30.0
    """A try ends by itself this long after its time: until then the agent keeps the policy, also after a restart."""
    spare_s: float = 60.0
    """A turn lasts this much longer than a try can, so that nobody takes it over while that goes on."""
    patience_s: float = 10.0
    """How long a problem must last during a try, or before it: a kubelet that restarts is none."""
    begin_within_s: float = 10.0
    """Within this time, one agent of few begins the rollout for all."""
    requests_per_s: float = 50.0
    """Of all nodes together that wait for their turn."""
    look_s: float = 5.0
    """The shortest pause between two looks for a turn."""
    settle_s: float = 10.0
    """How long the daemon's next report may take to show what it has answered."""
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0
    """Between attempts that fail; doubles."""
    again_s: float = 600.0
    """When a policy that the node refused is checked again: the machine may have changed."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """What the daemon says about its configuration."""

    instance: str
    """Changes with a restart."""
    source: str
    """Path of the file in force, or ``NodePolicy/NAME``."""
    hash: str
    try_left_s: float | None = None
    """Until the former configuration comes back; None: nothing is tried."""
    try_until: str = ""
    """When that is, as text."""
    problems: tuple[str, ...] = ()
    """Those of ``status --check``, without `OF_WORKLOADS`."""
    out_of_use: str = ""
    """Why no container is placed, as a sentence: a release or a bypass; empty: they are."""

    @property
    def policy_name(self) -> str:
        """The NodePolicy that is in force or tried; empty: it is a file."""
        return node_policy_of(self.source)

    @property
    def is_trying(self) -> bool:
        """Whether a NodePolicy is being tried."""
        return bool(self.policy_name) and self.try_left_s is not None

    @classmethod
    def read(cls, view: Mapping[str, Any]) -> "Daemon":
        """Return what an answer to the command ``agent`` says."""
        configuration, bypass = view["configuration"], bypass_of(view)
        trial, released = configuration.get("try"), view.get("released")
        out_of_use = f"the node is released: {released}" if released else ""
        return cls(
            instance=str(view.get("instance", "")),
            source=str(configuration.get("file") or ""),
            hash=str(configuration.get("hash") or ""),
            try_left_s=float(trial["left_s"]) if trial else None,
            try_until=str(trial["until"]) if trial else "",
            problems=problems_of(view),
            out_of_use=f"a bypass is on: {bypass.get('reason') or bypass['mode']}" if bypass else out_of_use,
        )


class Action(Enum):
    """What the agent does next; the shell's methods are named after these."""

    WAIT = "wait"
    CHECK = "check"
    """Ask the daemon whether it would take the policy."""
    BEGIN = "begin"
    """Write into the NodePolicy's status how many nodes may try it at once."""
    TAKE = "take"
    """Look for a turn, and take it if it is free."""
    CONFIRM = "confirm"
    """Read the NodePolicy anew: it may have changed or failed elsewhere before the turn became free."""
    TRY = "try"
    KEEP = "keep"
    BACK = "back"
    """End the try now."""
    TO_FILE = "to_file"
    """Return to the policy file of the node."""
    RECORD = "record"
    """Write a failure into the NodePolicy's status."""
    LEAVE = "leave"
    """Give up the turn."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the daemon says about a policy before it is tried."""

    about: tuple[str, str, str]
    """The hash of the policy, the hash in force, and the daemon's instance: it is good only for these."""
    until_s: float
    refusal: str = ""
    """Why the daemon refuses it; empty: it does not."""
    is_same: bool = False
    """Whether it is equivalent to what is in force."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of this node, or who has it."""

    is_known: bool = True
    """False after the start of the agent: it may have one from before."""
    is_likely: bool = False
    """Whether it has one then: a NodePolicy was being tried."""
    until_s: float = 0.0
    """When others may take it over, if they have seen it at once; 0: this node has none."""
    taken_for: tuple[int, str] = (0, "")
    """The generation and hash for which this node has it."""
    confirmed: tuple[int, str] = (0, "")
    """The generation and hash for which it was confirmed that the rollout goes on."""
    holder: str = ""
    """Who has it instead."""
    look_at_s: float = 0.0
    """When to look again then."""
    missing: str = ""
    """A node that has let its turn for the present spec expire, without saying how its try has ended."""
    excused: str = ""
    """Such a node that no longer exists."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the next report of the daemon shows, as it has said so."""

    hash: str
    """Empty: anything."""
    is_trying: bool
    until_s: float
    """After that, the report counts, whatever it says."""
    is_file: bool = False
    """Whether nothing of a NodePolicy is in force."""

    def shown_by(self, daemon: Daemon) -> bool:
        """Whether the report is from afterwards."""
        if self.is_file and daemon.policy_name:
            return False
        return daemon.is_trying == self.is_trying and self.hash in ("", daemon.hash)


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known at one moment."""

    now_s: float
    """Of the monotonic clock."""
    node: str
    daemon: Daemon | None
    """None: it does not answer."""
    choice: Choice | None
    """None: the NodePolicies, or the node's labels, are not known yet."""
    is_current: bool = False
    """Whether the API server has just said so, and serves NodePolicies: then what is absent was deleted."""
    node_uid: str = ""
    """Of the Node object; empty: it is not known, or was deleted."""
    said: RolloutState | None = None
    """What this node's NodePlacement said when the agent started; None: that is not known yet."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What the agent remembers; a new one knows only what the daemon and the API server know."""

    state: RolloutState = field(default_factory=RolloutState)
    has_read: bool = False
    """Whether `state` goes on from what the NodePlacement said."""
    verdict: Verdict | None = None
    turn: Turn = field(default_factory=lambda: Turn(is_known=False))
    looks_for: tuple[object, ...] = ()
    """What `look_at_s` is for."""
    look_at_s: float = 0.0
    """When to begin the rollout, or to look for a turn."""
    unclean_since_s: float | None = None
    """When the daemon's problems, during a try, began."""
    seen_under: str = ""
    """The uid of the Node object when this API server had the NodePolicy in force; empty: it never had."""
    expected: Expected | None = None
    failed: Action | None = None
    """What has failed last, and not succeeded since."""
    error: str = ""
    """Why."""
    failures: int = 0
    """How often, one after the other."""
    pause_until_s: float = 0.0
    """When to repeat it."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now."""

    action: Action
    memory: Memory
    wake_s: float | None = None
    """For `Action.WAIT`: when to look again although nothing has changed, on the monotonic clock; None: never."""
    text: str = ""
    """For `Action.RECORD`: why the policy failed."""
    about: str = ""
    """For `Action.RECORD`: on which node."""
