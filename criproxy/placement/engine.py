"""The single transition function of a node's state.

`step` uses no clock, disk, log or socket. Events about unknown containers or pods change nothing: calls race with
lists, and an undo may come after the container is gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from criproxy.errors import Refused
from criproxy.model.attributes import granted
from criproxy.model.grant import Applied, Reason
from criproxy.model.node import Node, with_changes, without
from criproxy.model.workload import Container, ContainerState, Miss
from criproxy.placement import events
from criproxy.placement.adoption import adopt, classify
from criproxy.placement.changes import policy_changed, topology_changed
from criproxy.placement.checked_policy import CheckedPolicy
from criproxy.placement.decision import Decision, updates_between
from criproxy.placement.options.policy_options import Options, options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback, NonePolicy
from criproxy.placement.rules import blocked_attempts, kept, memory_room, pod_total, pods, promotion, release
from criproxy.placement.rules.ask import Placed, without_grant
from criproxy.placement.rules.attributes.idle_burst import lifted_while_idle
from criproxy.placement.rules.attributes.quota import owns_all
from criproxy.placement.rules.pipeline import place, shown_for, with_classes
from criproxy.placement.rules.transitions import TRANSITIONS, advanced, given_up, has_given_way, ignores, state_after

V = TypeVar("V")
_LEFT_ALONE = NonePolicy(Options())
"""The policy of a released node."""


def step(node: Node, event: events.Event, policy: Policy) -> Decision:
    """Apply *event* to *node*.

    Raises:
        Refused: only for `ContainerCreating` and `ContainerResized`; the node is unchanged.
    """
    if not isinstance(policy, CheckedPolicy):
        return lifted_while_idle(node, event, _step(node, event, policy), policy)
    faults = list[str]()
    decision = lifted_while_idle(node, event, _step(node, event, replace(policy, faults=faults)), policy)
    return replace(decision, faults=tuple(faults)) if faults else decision


def _step(node: Node, event: events.Event, policy: Policy) -> Decision:  # noqa: PLR0911 (one for each kind of event)
    match event:
        case events.PolicyChanged():
            return policy_changed(node, policy, event)
        case events.ResizeRefused() | events.Promoted():
            return promotion.of_desired(node, event, policy)
        case events.Released(reason, configuration):
            return release.release(node, reason, configuration)
        case events.CardReported():
            return _reported(node, event)
        case events.PlacesMissed(keys, since_s):
            return Decision(promotion.to_be_promoted(node, Miss.BYPASSED, keys, since_s))
    asked, policy = policy, _LEFT_ALONE if node.released else policy
    match event:
        case events.TopologyChanged(topology, pods_cgroup):
            known = node.replace(pods_cgroup=pods_cgroup) if pods_cgroup else node
            return topology_changed(known, topology, policy)
        case events.Found():
            return adopt(node, event, policy)
        case events.Unclassified():
            return classify(node, event, policy)
        case _:
            decision = _of_workload(node, event, policy)
            if isinstance(event, events.ContainerResized) and isinstance(asked, Fallback):
                decision = replace(decision, node=promotion.to_be_promoted(decision.node, Miss.BYPASSED, [event.key]))
            arrives = isinstance(event, events.ContainerCreated)  # its message was sent before: compare with that
            if arrives or not decision.node.kept:
                return decision
            # Another sandbox may have changed the total of a pod.
            return decision.with_node(kept.trimmed(decision.node, policy), node)


def _reported(node: Node, event: events.CardReported) -> Decision:
    if event.incident is None:
        incidents = without(node.incidents, (event.key,)) if event.key in node.incidents else node.incidents
    else:
        same = node.incidents.get(event.key) == event.incident
        incidents = node.incidents if same else {**node.incidents, event.key: event.incident}
    return Decision(node if incidents is node.incidents else node.replace(incidents=incidents))


def _of_workload(node: Node, event: events.WorkloadEvent, policy: Policy) -> Decision:  # noqa: PLR0911 (one for each event)
    """Apply an event about one pod or container."""
    match event:
        case events.ContainerCreating(container):
            return _creating(node, container, policy)
        case events.ContainerCreated():
            return _created(node, event, policy)
        case events.ContainerStarted(key) | events.UnknownOutcome(key):
            return Decision(_advanced(node, key, event), key=key)
        case events.ColdStartEnded(key):
            return _warmed(node, key, policy)
        case events.ContainerExited(key) | events.ContainerGone(key):
            return _release(node, _advanced(node, key, event), policy, key)
        case events.UpdateApplied(key, applied):
            return _applied(node, key, applied)
        case events.ContainerResized():
            return _resized(node, event, policy)
        case events.PodStopped() | events.PodGone():
            return _pod_ended(node, event, policy)
        case events.PodCreated() | events.PodResized() | events.PodNotReady():
            return pods.of_pod(node, event, policy)


def _pod_ended(node: Node, event: events.PodStopped | events.PodGone, policy: Policy) -> Decision:
    is_gone = isinstance(event, events.PodGone)
    known = node.replace(pods=without(node.pods, (event.key,))) if is_gone else pods.stopped(node, event.key)
    ended = advanced(known, node.containers_of(event.key), TRANSITIONS[type(event)])
    return pods.of_pod_ended(_release(node, ended, policy), node, policy)


def _advanced(node: Node, key: str, event: events.Event) -> Node:
    """Return the node after *event* about the container *key*."""
    return advanced(node, [node.containers[key]] if key in node.containers else (), TRANSITIONS[type(event)])


def placing(node: Node, event: events.Event, policy: Policy) -> tuple[Node, Container] | None:
    """Return the arguments of `Policy.place` when *event* is applied to *node*; None if no container is placed.

    For explanations of the decision afterwards.
    """
    match event:
        case events.ContainerCreating(new):
            beside = node.containers_of(new.pod)
            if _twin(beside, new):
                return None
            known, container = _with_new(node, older := _older(beside, new), new, policy)
            why = blocked_attempts.last_blocked(node, older)
            if placed := blocked_attempts.elsewhere(known, container, why, policy):
                return None if placed.shown is None else (placed.shown, container)
        case events.ContainerResized(key, sizes, total) if key in node.grants and key in node.containers:
            container = node.containers[key].resized(sizes)
            known = pod_total.with_total(node, container.pod, total)
            if container.same_cpu(node.containers[key].sizes) and known is node:
                return None
            known = pod_total.counted(known.replace(containers={**node.containers, key: container}), container.pod)
            container = known.containers[key]
        case _:
            return None
    shown = shown_for(known, container, policy)
    return None if shown is None else (shown, container)


def _twin(beside: Sequence[Container], new: Container) -> Container | None:
    """Return the container whose create *new* repeats, of those *beside* it in its pod."""
    same = [c for c in beside if c.identity == new.identity]
    return next((c for c in same if not ignores(c, events.ContainerCreating)), None) if same else None


def _with_new(node: Node, older: Sequence[Container], new: Container, policy: Policy) -> tuple[Node, Container]:
    """Return the node including *new*, and *new* as the node has it; *older* are its earlier attempts."""
    ended = given_up(node, older)
    freed = _release(node, ended, policy).node if ended is not node else node
    container = new
    if new.state is not ContainerState.CREATING or new.reservation != new.key:
        container = replace(new, state=ContainerState.CREATING, reservation=new.key)
    known = freed.replace(containers=with_changes(freed.containers, {container.key: container}))
    known, _ = pods.recounted(known, container.pod, policy, arrives=True)
    return known, known.containers[container.key]


def _older(beside: Sequence[Container], new: Container) -> list[Container]:
    """Return the earlier attempts of *new*, of those *beside* it in its pod."""
    return [c for c in beside if c.name == new.name and c.attempt < new.attempt]


def _creating(node: Node, new: Container, policy: Policy) -> Decision:
    beside = node.containers_of(new.pod)
    if twin := _twin(beside, new):
        return _repeated(node, new, twin, policy)
    known, container = _with_new(node, older := _older(beside, new), new, policy)
    why = blocked_attempts.last_blocked(node, older)
    moved = blocked_attempts.elsewhere(known, container, why, policy)
    placed = memory_room.with_pages(moved or place(known, container, policy), container)
    after, key = placed.node, container.key
    if grant := after.grants.get(key):  # the create message contains it, so the runtime applies it
        after = after.replace(applied=with_changes(known.applied, {key: granted(grant)}))
    elif container.stays:  # it will run on all CPUs for as long as it exists, also when others are placed again
        after = after.replace(applied=with_changes(known.applied, {key: known.anywhere}))
    reasons = (*placed.reasons, *([Reason(key, why.text)] if moved else []))
    asked = None if placed.shown is None else (placed.shown, container)
    return Decision(after, updates_between(node, after), reasons, key, asked=asked)


def _repeated(node: Node, new: Container, twin: Container, policy: Policy) -> Decision:
    """Give *new* the place of *twin*, whose create it repeats; place it again if its pod was resized in between."""
    reasons: tuple[Reason, ...] = (Reason(twin.key, f"{new.title} repeats a create and inherits its place"),)
    after = node
    if not twin.has_id and twin.sizes != new.sizes:
        resized = _resized(node, events.ContainerResized(twin.key, new.sizes), policy)
        after, reasons = resized.node, (*reasons, *resized.reasons)
    after = _with_both_sent(after, twin.key)
    return Decision(after, updates_between(node, after), reasons, twin.key)


def _with_both_sent(node: Node, key: str) -> Node:
    """Return the node in which *key* may have the CPUs of its first create message, or of the second one.

    If one of them has lifted its quota, it counts as lifted.
    """
    grant, applied = node.grants.get(key), node.applied.get(key)
    if grant is None or applied is None:
        return node
    either = replace(applied, cpus=applied.cpus | grant.cpus, lifted=applied.lifted or granted(grant).lifted)
    return node if either == applied else node.replace(applied={**node.applied, key: either})


def _created(node: Node, event: events.ContainerCreated, policy: Policy) -> Decision:
    reservation, key = event.reservation, event.key
    if reservation not in node.containers:
        known = _advanced(node, key, event)
        if (container := known.containers.get(key)) and has_given_way(known, container):
            return _release(known, given_up(known, [container]), policy, key)
        return Decision(known, key=key)
    container = node.containers[reservation]
    state, grant = state_after(container, TRANSITIONS[events.ContainerCreated]), node.grants.get(reservation)
    after = node.replace(
        containers=_renamed(node.containers, reservation, key, replace(container, key=key, state=state)),
        grants=with_changes(node.grants, {key: grant}, (reservation,)) if grant else None,
        applied=_renamed(node.applied, reservation, key),
        former=_renamed(node.former, reservation, key) if node.former else None,
    )
    if container.stays and grant and not owns_all(grant):
        after = after.replace(grants=without(after.grants, (key,)))  # a shared container would have to move for others
    # While it had no id, it could not be updated when others arrived: the cpuset in its message may be outdated.
    return Decision(after, updates_between(node, after, arrived=key), key=key)


def _renamed(base: Mapping[str, V], old: str, new: str, value: V | None = None) -> Mapping[str, V]:
    """Return *base* with the entry *old*, if it exists, under the key *new* at the end, maybe with another value."""
    if old not in base:
        return base
    return with_changes(base, {new: base[old] if value is None else value}, (old,))


def _resized(node: Node, event: events.ContainerResized, policy: Policy) -> Decision:
    key, sizes = event.key, event.sizes
    container = node.containers.get(key)
    if container is None or ignores(container, events.ContainerResized):
        return Decision(node, key=key)
    known = pod_total.with_total(node, container.pod, event.cpu_total_milli)
    if container.sizes == sizes and not container.desired and known is node:
        return Decision(node, key=key)
    is_same_cpu = container.same_cpu(sizes) and known is node
    before, container = container, container.resized(sizes)
    known = known.replace(containers=with_changes(node.containers, {key: container}))
    if key not in node.grants:  # unplaced, and stays so
        return Decision(known, key=key)
    try:
        # If the CPU size is unchanged, do not place it again: a shared container must not be refused for lack of CPUs.
        if not is_same_cpu:
            known, _ = pods.recounted(known, container.pod, policy, must=True)
            container = known.containers[key]
        placed = Placed(known) if is_same_cpu else place(known, container, policy)
    except Refused:
        if not promotion.is_believed(before, sizes):
            raise
        known = node.replace(containers={**node.containers, key: promotion.with_memory_of(before, sizes)})
        placed, is_same_cpu = Placed(known), True
    if is_same_cpu:  # its classes may set parts of its memory, or of its CPU limit
        placed = with_classes(known, placed, known.containers[key], policy)
    placed = memory_room.with_room(known, placed, known.containers[key], policy)
    after = placed.node
    if node.grants[key].exclusive and not after.grants[key].exclusive:  # its siblings may share too many CPUs now
        after = pods.apart_again(after, container, policy)
    return Decision(after, updates_between(node, after), placed.reasons, key)


def _warmed(node: Node, key: str, policy: Policy) -> Decision:
    container = node.containers.get(key)
    if container is None or container.warm or ignores(container, events.ColdStartEnded):
        return Decision(node, key=key)
    container = replace(container, warm=True)
    known = node.replace(containers=with_changes(node.containers, {key: container}))
    if key not in node.grants:  # unplaced, and stays so
        return Decision(known, key=key)
    try:
        placed = place(known, container, policy)
    except Refused as error:  # it runs, so it stays where it is
        text = f"{container.title} stays after its cold start: {error}"
        return Decision(known, reasons=(Reason(key, text),), key=key)
    return Decision(placed.node, updates_between(node, placed.node), placed.reasons, key)


def _applied(node: Node, key: str, applied: Applied) -> Decision:
    if ignores(node.containers.get(key), events.UpdateApplied) or node.applied.get(key) == applied:
        return Decision(node)
    if node.released:
        return Decision(release.let_go(node, key, applied), key=key)
    return Decision(node.replace(applied=with_changes(node.applied, {key: applied})), key=key)


def _release(before: Node, after: Node, policy: Policy, key: str | None = None) -> Decision:
    """Release the grants of all containers that are gone or have exited in *after*."""
    reasons: tuple[Reason, ...] = ()
    for holder in before.grants if key is None else before.grants.keys() & {key}:
        container = after.containers.get(holder)
        if container is None or container.state is ContainerState.EXITED:
            if before.grants[holder].exclusive and holder in before.containers:
                after = _after_owner(before, after, before.containers[holder], policy)
            left = without_grant(after, holder, policy)
            after, reasons = left.node, (*reasons, *left.reasons)
            if key is None or key not in before.containers:
                continue
            ended = before.containers[key]
            failed = ended.reservation == key
            if before.grants[holder].exclusive:
                moved = pods.apart_again(after, ended, policy)
                after = moved if failed else _kept_as_before(after, moved, ended, policy)
            if ended.of_pod or failed:  # a create that comes to nothing gives its siblings back what they gave it
                after, _ = pods.recounted(after, ended.pod, policy)
    return Decision(after, updates_between(before, after), reasons, key)


def _after_owner(before: Node, after: Node, ended: Container, policy: Policy) -> Node:
    """Return the node *after* an exclusive container has *ended*, with the CPUs that are kept for its pod."""
    why, pod = blocked_attempts.blocked(before, ended), before.pods.get(ended.pod)
    if not why.used or pod is None:
        return kept.with_leaver(after, ended, before.grants[ended.key].exclusive, policy)
    return kept.with_kept_of(after, pod.uid, after.kept.get(pod.uid, kept.NOTHING).less(ended.name, why.granted))


def _kept_as_before(before: Node, moved: Node, ended: Container, policy: Policy) -> Node:
    """Return the node in which siblings have *moved* off CPUs of an *ended* container, which are kept for it."""
    pod = moved.pods.get(ended.pod)
    if moved.kept == before.kept or not pod or pod.uid not in before.kept:
        return moved
    left = kept.within_total(before.kept[pod.uid], kept.owned_by(moved, pod.uid), pod, moved)
    made = kept.with_other_kept(moved, kept.with_kept_of(moved, pod.uid, left).kept, policy)
    return made if options_of(policy).within(made).shared_cpus else moved
