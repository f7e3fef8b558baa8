"""Pure: what the rollout on this node does next.

`decide` is called whenever something may have changed, and `learned` or `failed` with the outcome of what it chose.
What must survive the agent is elsewhere: the daemon knows what is in force and ends a try by itself, the NodePlacement
has the last `RolloutState`, and the NodePolicy the failures of all nodes.
"""

from dataclasses import replace
from hashlib import sha256
from math import log

from criproxy.agent.objects.node_policy import NodePolicy
from criproxy.agent.objects.placement import Phase, RolloutState
from criproxy.agent.rollout.choose import failure_on, has_begun, is_recorded, why_stopped
from criproxy.agent.rollout.situation import (
    Action,
    Daemon,
    Expected,
    Memory,
    Pace,
    Situation,
    Step,
    Turn,
    Verdict,
)

MANY_NODES = 10_000
"""The number of nodes for which it is made that few of them begin a rollout for all."""
LOST = "the try ended and nobody kept the policy: the agent was away, or somebody ended the try on the node"


def decide(now: Situation, memory: Memory, pace: Pace) -> Step:
    """Return what to do now, and what to remember; an action that failed a moment ago is not repeated at once."""
    daemon = now.daemon
    if daemon is None:
        return Step(Action.WAIT, memory)
    memory = _noticed(now, daemon, memory)
    if memory.expected and not memory.expected.shown_by(daemon) and now.now_s < memory.expected.until_s:
        return Step(Action.WAIT, memory, memory.expected.until_s)
    memory = replace(memory, expected=None)
    step = _in_a_try(now, daemon, memory, pace) if daemon.is_trying else _at_rest(now, daemon, memory, pace)
    if step.action is not memory.failed:  # what has failed is not wanted any more
        is_reason = memory.failed is Action.KEEP and step.memory.state.phase == "Trying"
        return step if is_reason else replace(step, memory=_without_error(step.memory))
    if now.now_s < memory.pause_until_s:
        return Step(Action.WAIT, step.memory, memory.pause_until_s)
    return step


def learned(memory: Memory, answer: Verdict | Turn | Expected | None, action: Action) -> Memory:
    """Return what to remember after *action* has succeeded with that *answer*."""
    if action is memory.failed:
        memory = _without_error(memory)
    match answer:
        case Verdict():
            return replace(memory, verdict=answer)
        case Turn():
            return replace(memory, turn=answer, look_at_s=answer.look_at_s)
        case Expected():
            phase: Phase | None = {Action.TRY: "Trying", Action.KEEP: "Applied"}.get(action)  # type: ignore[assignment]
            state = replace(memory.state, phase=phase, message="") if phase else memory.state
            return replace(memory, expected=answer, state=state)
    return memory


def _without_error(memory: Memory) -> Memory:
    return replace(memory, failed=None, error="", failures=0, pause_until_s=0.0)


def failed(memory: Memory, action: Action, error: str, now_s: float, pace: Pace, luck: float) -> Memory:
    """Return what to remember after *action* has failed with the sentence *error*.

    Args:
        memory: from before.
        action: what has failed.
        error: why.
        now_s: the time.
        pace: how long pauses are.
        luck: a random number from 0 to 1, so that nodes do not repeat it together.
    """
    count = memory.failures + 1 if action is memory.failed else 1
    bound_s = min(pace.longest_pause_s, pace.first_pause_s * 2.0 ** min(count - 1, 30))
    pause_s = bound_s * (1 + luck) / 2
    memory = replace(memory, failed=action, error=error, failures=count, pause_until_s=now_s + pause_s)
    if action is Action.TRY and memory.verdict:  # others take their turn until it is checked again
        again_s = min(pace.again_s, bound_s * pace.longest_pause_s)
        verdict = replace(memory.verdict, refusal=error, until_s=now_s + again_s)
        begun = Expected(memory.state.hash, is_trying=True, until_s=now_s + pace.settle_s)  # it may have begun
        return replace(memory, verdict=verdict, expected=begun)
    return memory


def _noticed(now: Situation, daemon: Daemon, memory: Memory) -> Memory:
    """Remember what the NodePlacement said, and that this API server has, or had, what is in force."""
    if now.said is not None and not memory.has_read:
        memory = replace(memory, has_read=True, state=memory.state if memory.state.phase else now.said)
        if now.said.phase in ("Applied", "RolledBack", "Refused"):  # then no try was going on
            memory = replace(memory, turn=Turn())
    if not (now.choice and now.is_current and now.node_uid and daemon.policy_name):
        return memory
    was_there = now.said is not None and now.said.generation and now.said.policy_name == daemon.policy_name
    if daemon.policy_name in now.choice.names or (was_there and not memory.seen_under):
        return replace(memory, seen_under=now.node_uid)
    return memory


def _may_return(now: Situation, memory: Memory) -> bool:
    """Whether no NodePolicy selects the node because users want that, and not because the API server lost them."""
    known = now.choice is not None and not now.choice.mistakes and now.is_current
    return known and bool(now.node_uid) and memory.seen_under == now.node_uid


def _is_of(state: RolloutState, policy: NodePolicy) -> bool:
    """Whether *state* is about the present spec; a try of which the generation was not known counts."""
    same = (state.policy_name, state.hash) == (policy.name, policy.hash)
    return same and state.generation in (0, policy.generation)


def _says(memory: Memory, policy: NodePolicy, phase: Phase, message: str = "") -> Memory:
    return replace(memory, state=RolloutState(policy.name, policy.generation, policy.hash, phase, message))


def _in_a_try(now: Situation, daemon: Daemon, memory: Memory, pace: Pace) -> Step:
    """A NodePolicy is being tried: judge it. For that the API server is not needed, not even to keep the policy."""
    policy = now.choice.policy if now.choice else None
    if now.choice and policy is None and _may_return(now, memory):
        return Step(Action.TO_FILE, replace(memory, state=RolloutState()))
    if policy and policy.hash != daemon.hash:
        return Step(Action.BACK, _says(memory, policy, "Waiting", "the policy changed during its try, which ends"))
    if policy and (why := failure_on(policy, now.node)):
        return Step(Action.BACK, _says(memory, policy, "RolledBack", why))
    if policy and (why := why_stopped(policy)):
        return Step(Action.BACK, _says(memory, policy, "Waiting", why))
    before = memory.state
    generation = policy.generation if policy else before.generation if before.hash == daemon.hash else 0
    name = policy.name if policy else daemon.policy_name
    state = RolloutState(name, generation, daemon.hash, "Trying")
    if before.phase == "RolledBack" and replace(before, phase="Trying", message="") == state:
        return Step(Action.BACK, memory)
    return _judged(now.now_s, daemon, replace(memory, state=state), pace)


def _judged(now_s: float, daemon: Daemon, memory: Memory, pace: Pace) -> Step:
    """Keep, end or go on with a try."""
    state, left_s = memory.state, (daemon.try_left_s or 0.0) - pace.keep_before_s
    if daemon.out_of_use:
        return Step(Action.BACK, replace(memory, state=replace(state, phase="RolledBack", message=daemon.out_of_use)))
    if not daemon.problems:
        message = f"cannot be kept: {memory.error}" if memory.failed is Action.KEEP else ""
        memory = replace(memory, unclean_since_s=None, state=replace(state, message=message))
        return Step(Action.WAIT, memory, now_s + left_s) if left_s > 0 else Step(Action.KEEP, memory)
    since_s = now_s if memory.unclean_since_s is None else memory.unclean_since_s
    text = _first(daemon.problems)
    memory = replace(memory, unclean_since_s=since_s, state=replace(state, message=text))
    if now_s >= since_s + pace.patience_s:
        return Step(Action.BACK, replace(memory, state=replace(state, phase="RolledBack", message=text)))
    return Step(Action.WAIT, memory, since_s + pace.patience_s)


def _first(problems: tuple[str, ...]) -> str:
    more = len(problems) - 1
    return problems[0] + (f" (and {more} more)" if more else "")


def _at_rest(now: Situation, daemon: Daemon, memory: Memory, pace: Pace) -> Step:
    """No NodePolicy is being tried."""
    memory = replace(memory, unclean_since_s=None)
    if now.choice is None or not memory.has_read:
        return Step(Action.WAIT, memory)
    policy = now.choice.policy
    if policy is None:
        return _without_policy(now, daemon, memory)
    if policy.hash == daemon.hash:
        return _resting(_says(memory, policy, "Applied", now.choice.why), policy)
    if memory.state.phase in ("Trying", "RolledBack") and _is_of(memory.state, policy):
        return _after_a_try(now, policy, memory, pace)
    if why := failure_on(policy, now.node):
        return _resting(_says(memory, policy, "RolledBack", why), policy)
    return _before_a_try(now, daemon, policy, memory, pace)


def _after_a_try(now: Situation, policy: NodePolicy, memory: Memory, pace: Pace) -> Step:
    """The policy was tried and is not in force: all nodes have to know, before another one takes this turn."""
    text = memory.state.message or why_stopped(policy)
    if memory.state.phase == "Trying":
        text = f"the policy could not be kept: {memory.error}" if memory.failed is Action.KEEP else LOST
    memory = _says(memory, policy, "RolledBack", failure_on(policy, now.node) or text)
    if is_recorded(policy, now.node):
        return _resting(memory, policy)
    return _in_the_turn(now, policy, memory, pace) or _recording(memory, now.node, text)


def _recording(memory: Memory, node: str, text: str) -> Step:
    return Step(Action.RECORD, memory, text=text, about=node)


def _in_the_turn(now: Situation, policy: NodePolicy, memory: Memory, pace: Pace) -> Step | None:
    """Prolong the turn before others may take it over, while a failure cannot be recorded; None: there is time."""
    left_s = memory.turn.until_s - now.now_s
    if memory.turn.until_s > 0 and left_s < pace.spare_s / 2 and has_begun(policy):
        return Step(Action.TAKE, memory)
    return None


def _resting(memory: Memory, policy: NodePolicy | None, wake_s: float | None = None) -> Step:
    """Nothing is to be done, but to give up the turn.

    A turn from before the agent started is given up only if it is known how the try in it ended: otherwise it expires,
    and counts as a failure.
    """
    maybe = not memory.turn.is_known and memory.state.phase in ("Applied", "RolledBack")
    if memory.turn.until_s or (maybe and policy is not None and has_begun(policy)):
        return Step(Action.LEAVE, memory)
    return Step(Action.WAIT, memory, wake_s)


def _without_policy(now: Situation, daemon: Daemon, memory: Memory) -> Step:
    """No NodePolicy selects the node: the policy file on it counts."""
    assert now.choice is not None
    mistakes = "; ".join(now.choice.mistakes)
    if not daemon.policy_name:
        return _resting(replace(memory, state=RolloutState(message=mistakes)), None)
    if _may_return(now, memory):
        return Step(Action.TO_FILE, replace(memory, state=RolloutState()))
    text = (
        f"NodePolicy {daemon.policy_name} is in force, but this API server does not have it, and it is not known that "
        "it was deleted: create it again, or run 'criproxy reload' on the node to go back to its policy file"
    )
    return _resting(replace(memory, state=RolloutState(message=mistakes or text)), None)


def _before_a_try(now: Situation, daemon: Daemon, policy: NodePolicy, memory: Memory, pace: Pace) -> Step:
    """The policy is another one than that in force, and has not failed here."""
    verdict = memory.verdict
    about = (policy.hash, daemon.hash, daemon.instance)
    if verdict is None or verdict.about != about or now.now_s >= verdict.until_s:
        return Step(Action.CHECK, memory)
    if verdict.refusal:
        return _resting(_says(memory, policy, "Refused", verdict.refusal), policy, verdict.until_s)
    if verdict.is_same:
        return _resting(_says(memory, policy, "Applied", "equivalent to what was in force"), policy, verdict.until_s)
    if why := why_stopped(policy) or _why_not_now(daemon):
        return _resting(_says(memory, policy, "Waiting", why), policy)
    return _to_a_turn(now, policy, memory, pace)


def _why_not_now(daemon: Daemon) -> str:
    """Why nothing can be tried on this node now; empty: it can."""
    if daemon.try_left_s is not None:
        return f"{daemon.source} is being tried on this node"
    if daemon.problems:
        return f"this node had a problem before the try: {_first(daemon.problems)}"
    return daemon.out_of_use


def _to_a_turn(now: Situation, policy: NodePolicy, memory: Memory, pace: Pace) -> Step:
    """Get a turn, and use it."""
    begun = has_begun(policy)
    looks_for = (policy.uid, policy.generation, policy.hash, begun)
    if memory.looks_for != looks_for:
        wait_s = _first_look_s(policy, now.node, pace) if begun else _begin_after_s(policy, now.node, pace)
        memory = replace(memory, looks_for=looks_for, look_at_s=now.now_s + wait_s)
    turn, lasts_s = memory.turn, policy.spec.rollout.try_s + pace.keep_before_s + pace.spare_s
    if turn.until_s:
        of_spec = (policy.generation, policy.hash)
        if turn.taken_for != of_spec or turn.until_s - now.now_s < lasts_s - pace.spare_s / 2:
            return Step(Action.TAKE, memory)  # too little is left of it for a try
        if turn.confirmed != of_spec:
            return Step(Action.CONFIRM, memory)
        return Step(Action.TRY, _says(memory, policy, "Waiting", "the try begins"))
    if turn.missing and not is_recorded(policy, turn.missing) and turn.missing != turn.excused:
        return _recording(memory, turn.missing, "it took its turn, and did not say in time how the try ended")
    memory = _says(memory, policy, "Waiting", _waits_for(memory, begun=begun))
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
    """When this node first looks for a turn: all nodes together do not ask more often than `Pace` says."""
    nodes = policy.status.rollout.nodes if policy.status.rollout else 1
    return _lot(policy, node, "turn") * nodes / pace.requests_per_s


def _begin_after_s(policy: NodePolicy, node: str, pace: Pace) -> float:
    """When this node begins the rollout if no other one has: of few nodes and of many, few draw the shortest time.

    The chance grows exponentially with time, so that one node need not wait for ever, and of 10,000 nodes about two
    begin in the second after the first one, until all see that it has begun.
    """
    return pace.begin_within_s * log(1 + _lot(policy, node, "begin") * (MANY_NODES - 1)) / log(MANY_NODES)


def _lot(policy: NodePolicy, node: str, purpose: str) -> float:
    """Return a number from 0 to 1 that differs from node to node and from rollout to rollout."""
    text = f"{node} {policy.uid} {policy.generation} {purpose}"
    return int.from_bytes(sha256(text.encode()).digest()[:6], "big") / 2**48
