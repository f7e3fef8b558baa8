"""Pure: how a node waits until it may try a NodePolicy, and when it gives up its turn."""

from dataclasses import replace
from hashlib import sha256
from math import log

from criproxy.agent.objects.node_policy import NodePolicy
from criproxy.agent.objects.placement import Phase, RolloutState
from criproxy.agent.rollout.choose import has_begun, is_recorded, why_stopped
from criproxy.agent.rollout.situation import Action, Daemon, Memory, Pace, Situation, Step

ENDED: frozenset[Phase] = frozenset({"Applied", "RolledBack"})
"""How a try has ended."""
MANY_NODES = 10_000
"""The number of nodes for which it is made that few of them begin a rollout for all."""


def says(memory: Memory, policy: NodePolicy, phase: Phase, message: str = "") -> Memory:
    """Remember that the present spec of *policy* is in this phase."""
    return replace(memory, state=RolloutState(policy.name, policy.generation, policy.hash, phase, message))


def resting(memory: Memory, policy: NodePolicy | None, wake_s: float | None = None) -> Step:
    """Nothing is to be done, but to give up the turn.

    A turn from before the agent started is given up only if it is known how the try in it ended, maybe since the spec
    changed: otherwise it expires, and counts as a failure.
    """
    turn, ended = memory.turn, memory.state.phase in ENDED
    maybe = policy is not None and not turn.is_known and (turn.is_likely or (ended and has_begun(policy)))
    if turn.until_s or maybe:
        return Step(Action.LEAVE, memory)
    return Step(Action.WAIT, memory, wake_s)


def recording(memory: Memory, node: str, text: str) -> Step:
    """Write that the policy has failed on *node*."""
    return Step(Action.RECORD, memory, text=text, about=node)


def first(problems: tuple[str, ...]) -> str:
    """Return the first problem, and how many more there are."""
    more = len(problems) - 1
    return problems[0] + (f" (and {more} more)" if more else "")


def before_a_try(now: Situation, daemon: Daemon, policy: NodePolicy, memory: Memory, pace: Pace) -> Step:
    """The policy is another one than that in force, and has not failed here."""
    verdict = memory.verdict
    about = (policy.hash, daemon.hash, daemon.instance)
    if verdict is None or verdict.about != about or now.now_s >= verdict.until_s:
        if memory.failed is Action.CHECK:
            memory = says(memory, policy, "Waiting", f"the node could not check the policy: {memory.error}")
        return Step(Action.CHECK, memory)
    if verdict.refusal:
        return resting(says(memory, policy, "Refused", verdict.refusal), policy, verdict.until_s)
    if verdict.is_same:
        return resting(says(memory, policy, "Applied", "equivalent to what was in force"), policy, verdict.until_s)
    if why := why_stopped(policy) or _why_not_now(daemon):
        return resting(says(memory, policy, "Waiting", why), policy)
    return _to_a_turn(now, policy, memory, pace)


def _why_not_now(daemon: Daemon) -> str:
    """Why nothing can be tried on this node now; empty: it can."""
    if daemon.try_left_s is not None:
        return f"{daemon.source} is being tried on this node"
    if daemon.problems:
        return f"this node had a problem before the try: {first(daemon.problems)}"
    return daemon.out_of_use


def _to_a_turn(now: Situation, policy: NodePolicy, memory: Memory, pace: Pace) -> Step:
    """Get a turn, and use it."""
    begun = has_begun(policy)
    looks_for = (policy.uid, policy.generation, policy.hash, begun)
    if memory.looks_for != looks_for:
        memory = replace(memory, looks_for=looks_for, look_at_s=now.now_s + _first_look_s(policy, now.node, pace))
    turn, lasts_s = memory.turn, policy.spec.rollout.try_s + pace.keep_before_s + pace.spare_s
    if turn.until_s:
        of_spec = (policy.generation, policy.hash)
        if turn.taken_for != of_spec or turn.until_s - now.now_s < lasts_s - pace.spare_s / 2:
            return Step(Action.TAKE, memory)  # too little is left of it for a try
        if turn.confirmed != of_spec:
            return Step(Action.CONFIRM, memory)
        return Step(Action.TRY, says(memory, policy, "Waiting", "the try begins"))
    if turn.missing and not is_recorded(policy, turn.missing) and turn.missing != turn.excused:
        return recording(memory, turn.missing, "it took its turn, and did not say in time how the try ended")
    memory = says(memory, policy, "Waiting", _waits_for(memory, begun=begun))
    if now.now_s < memory.look_at_s:
        return Step(Action.WAIT, memory, memory.look_at_s)
    return Step(Action.TAKE if begun else Action.BEGIN, memory)


def _waits_for(memory: Memory, *, begun: bool) -> str:
    if memory.failed in (Action.BEGIN, Action.TAKE, Action.CONFIRM):
        return memory.error
    if not begun:
        return "the rollout begins soon"
    return f"waits for its turn, which {memory.turn.holder} has" if memory.turn.holder else "waits for its turn"


def _first_look_s(policy: NodePolicy, node: str, pace: Pace) -> float:
    """When this node first looks for a turn, or begins the rollout if no other one has.

    All nodes together do not ask for a turn more often than `Pace` says. Of few nodes and of many, few draw the
    shortest time to begin: the chance grows exponentially with time, so that one node need not wait for ever, and of
    10,000 nodes about two begin in the second after the first one, until all see that it has begun.
    """
    if has_begun(policy):
        nodes = policy.status.rollout.nodes if policy.status.rollout else 1
        return _lot(policy, node, "turn") * nodes / pace.requests_per_s
    return pace.begin_within_s * log(1 + _lot(policy, node, "begin") * (MANY_NODES - 1)) / log(MANY_NODES)


def _lot(policy: NodePolicy, node: str, purpose: str) -> float:
    """Return a number from 0 to 1 that differs from node to node and from rollout to rollout."""
    text = f"{node} {policy.uid} {policy.generation} {purpose}"
    return int.from_bytes(sha256(text.encode()).digest()[:6], "big") / 2**48
