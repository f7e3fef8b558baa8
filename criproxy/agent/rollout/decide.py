"""Pure: what the rollout on this node does next.

`decide` is called whenever something may have changed, and `learned` or `failed` with the outcome of what it chose.
What must survive the agent is elsewhere: the daemon knows what is in force and ends a try by itself, the NodePlacement
has the last `RolloutState`, and the NodePolicy the failures of all nodes.
"""

from dataclasses import replace

from criproxy.agent.objects.node_policy import NodePolicy
from criproxy.agent.objects.placement import Phase, RolloutState
from criproxy.agent.rollout.choose import failure_on, has_begun, is_recorded, why_stopped
from criproxy.agent.rollout.situation import Action, Daemon, Expected, Memory, Pace, Situation, Step, Turn, Verdict
from criproxy.agent.rollout.waiting import before_a_try, first, recording, resting, says

LOST = (
    "the try ended and nobody kept the policy: the agent was away, somebody ended the try on the node, or its clock "
    "was set forward"
)


def decide(now: Situation, memory: Memory, pace: Pace) -> Step:
    """Return what to do now, and what to remember; an action that failed a moment ago is not repeated at once."""
    daemon = now.daemon
    if daemon is None:
        return Step(Action.WAIT, memory)
    memory = _noticed(now, daemon, memory)
    if memory.expected and not memory.expected.shown_by(daemon) and now.now_s < memory.expected.until_s:
        return Step(Action.WAIT, memory, memory.expected.until_s)
    memory = replace(memory, expected=None)
    if now.choice and now.choice.unreadable & {daemon.policy_name, memory.state.policy_name}:
        # Nobody has said that the NodePolicy of this node does not count: until it can be read, no other one does.
        now = replace(now, choice=replace(now.choice, policy=None))
    step = _in_a_try(now, daemon, memory, pace) if daemon.is_trying else _at_rest(now, daemon, memory, pace)
    if step.action is memory.failed:
        return Step(Action.WAIT, step.memory, memory.pause_until_s) if now.now_s < memory.pause_until_s else step
    if memory.failed is Action.KEEP and step.memory.state.phase == "Trying":
        return step  # with the error: if the try ends meanwhile, it is the reason
    return replace(step, memory=_without_error(step.memory))  # what has failed is not wanted any more


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
        ended = now.said.phase in ("Applied", "RolledBack", "Refused")  # it may not know yet that a try has begun
        if ended and not (daemon.is_trying or memory.turn.is_likely):
            memory = replace(memory, turn=Turn())
    if not memory.turn.is_known and (daemon.is_trying or memory.state.phase == "Trying"):
        memory = replace(memory, turn=replace(memory.turn, is_likely=True))
    if not (now.choice and now.is_current and now.node_uid and daemon.policy_name):
        return memory
    chosen, said = now.choice.policy, now.said  # one of another name may say the same
    is_there = daemon.policy_name in now.choice.names or (chosen is not None and chosen.hash == daemon.hash)
    was_there = said and said.generation and (said.policy_name == daemon.policy_name or said.hash == daemon.hash)
    if is_there or (was_there and not memory.seen_under):
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


def _in_a_try(now: Situation, daemon: Daemon, memory: Memory, pace: Pace) -> Step:
    """A NodePolicy is being tried: judge it. For that the API server is not needed, not even to keep the policy."""
    policy = now.choice.policy if now.choice else None
    if now.choice and policy is None and _may_return(now, memory):
        return _to_file(memory)
    if policy and policy.hash != daemon.hash:
        return Step(Action.BACK, says(memory, policy, "Waiting", "the policy changed during its try, which ends"))
    if policy and (why := failure_on(policy, now.node)):
        return Step(Action.BACK, says(memory, policy, "RolledBack", why))
    if policy and (why := why_stopped(policy)):
        return Step(Action.BACK, says(memory, policy, "Waiting", why))
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
    text = first(daemon.problems)
    memory = replace(memory, unclean_since_s=since_s, state=replace(state, message=text))
    if now_s >= since_s + pace.patience_s:
        return Step(Action.BACK, replace(memory, state=replace(state, phase="RolledBack", message=text)))
    return Step(Action.WAIT, memory, since_s + pace.patience_s)


def _at_rest(now: Situation, daemon: Daemon, memory: Memory, pace: Pace) -> Step:
    """No NodePolicy is being tried."""
    memory = replace(memory, unclean_since_s=None)
    if now.choice is None or not memory.has_read:
        return Step(Action.WAIT, memory)
    policy = now.choice.policy
    if policy is None:
        return _without_policy(now, daemon, memory)
    if policy.hash == daemon.hash:
        return resting(says(memory, policy, "Applied", now.choice.why), policy)
    if memory.state.phase in ("Trying", "RolledBack") and _is_of(memory.state, policy):
        return _after_a_try(now, policy, memory, pace)
    if why := failure_on(policy, now.node):
        return resting(says(memory, policy, "RolledBack", why), policy)
    return before_a_try(now, daemon, policy, memory, pace)


def _after_a_try(now: Situation, policy: NodePolicy, memory: Memory, pace: Pace) -> Step:
    """The policy was tried and is not in force: all nodes have to know, before another one takes this turn."""
    text = memory.state.message or why_stopped(policy)
    if memory.state.phase == "Trying":
        text = f"the policy could not be kept: {memory.error}" if memory.failed is Action.KEEP else LOST
    memory = says(memory, policy, "RolledBack", failure_on(policy, now.node) or text)
    if is_recorded(policy, now.node):
        return resting(memory, policy)
    left_s = memory.turn.until_s - now.now_s
    if memory.turn.until_s > 0 and left_s < pace.spare_s / 2 and has_begun(policy):
        return Step(Action.TAKE, memory)  # others must not take it over while the failure cannot be recorded
    return recording(memory, now.node, text)


def _without_policy(now: Situation, daemon: Daemon, memory: Memory) -> Step:
    """No NodePolicy selects the node: the policy file on it counts."""
    assert now.choice is not None
    mistakes = "; ".join(now.choice.mistakes)
    if memory.state.policy_name in now.choice.unreadable:
        outcome = memory.state.phase in ("Trying", "RolledBack")  # that other nodes may still have to know
        message = memory.state.message if outcome else mistakes
        return resting(replace(memory, state=replace(memory.state, message=message)), None)
    if not daemon.policy_name:
        return resting(replace(memory, state=RolloutState(message=mistakes)), None)
    if _may_return(now, memory):
        return _to_file(memory)
    text = (
        f"NodePolicy {daemon.policy_name} is in force, but this API server does not have it, and it is not known that "
        "it was deleted: create it again, or run 'criproxy reload' on the node to go back to its policy file"
    )
    return resting(replace(memory, state=RolloutState(message=mistakes or text)), None)


def _to_file(memory: Memory) -> Step:
    """Return to the policy file; until it is in force, a restarted agent must know that the NodePolicy was there."""
    if memory.failed is Action.TO_FILE:
        memory = replace(memory, state=replace(memory.state, phase="LastGood", message=memory.error))
    return Step(Action.TO_FILE, memory)
