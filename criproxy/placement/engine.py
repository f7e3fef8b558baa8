"""The single transition function of a node's state.

`step` uses no clock, disk, log or socket. Events about unknown containers or pods change nothing: calls race with
lists, and an undo may come after the container is gone.
"""

from collections.abc import Sequence
from dataclasses import replace

from criproxy.errors import Refused
from criproxy.model.attributes import granted
from criproxy.model.entries import entries_of, renamed, with_entries, without
from criproxy.model.grant import Applied, Layout
from criproxy.model.node import Node
from criproxy.model.text.reason import Reason
from criproxy.model.workload import Container, ContainerState, Miss
from criproxy.placement.adoption import adopt
from criproxy.placement.changes import policy_changed, topology_changed
from criproxy.placement.checked_policy import CheckedPolicy
from criproxy.placement.decision import Decision
from criproxy.placement.events import (
    CardReported,
    ColdStartEnded,
    ContainerCreated,
    ContainerCreating,
    ContainerExited,
    ContainerGone,
    ContainerResized,
    ContainerStarted,
    Event,
    Found,
    PodCreated,
    PodGone,
    PodNotReady,
    PodResized,
    PodStopped,
    PolicyChanged,
    Promoted,
    Released,
    ResizeRefused,
    TopologyChanged,
    UnknownOutcome,
    UpdateApplied,
    WorkloadEvent,
)
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.fallback import Fallback
from criproxy.placement.rules.blocked_attempts import blocked, elsewhere, last_blocked
from criproxy.placement.rules.complete import complete
from criproxy.placement.rules.keeping import Keeping
from criproxy.placement.rules.kept import NOTHING, owned_by, with_kept_of, with_leaver, within_total
from criproxy.placement.rules.memory_room import with_pages, with_room
from criproxy.placement.rules.pod_total import apart_again, counted, recounted, with_total
from criproxy.placement.rules.pods import of_pod, of_pod_ended, stopped
from criproxy.placement.rules.promotion import is_believed, of_desired, to_be_promoted, with_memory_of
from criproxy.placement.rules.quota import Lifting, owns_all
from criproxy.placement.rules.release import LET_GO, let_go, release
from criproxy.placement.rules.transitions import (
    LATER_ATTEMPT,
    TRANSITIONS,
    advanced,
    has_given_way,
    ignores,
    state_after,
)
from criproxy.placement.updates import updates_between


def step(node: Node, event: Event, policy: Policy) -> Decision:
    """Apply *event* to *node*.

    Raises:
        Refused: only for `ContainerCreating` and `ContainerResized`; the node is unchanged.
    """
    if not isinstance(policy, CheckedPolicy):
        return _step(node, event, policy)
    faults = list[str]()
    decision = _step(node, event, policy.listing(faults))
    return replace(decision, faults=tuple(faults)) if faults else decision


def _step(node: Node, event: Event, policy: Policy) -> Decision:  # noqa: PLR0911 (one for each kind of event)
    match event:
        case PolicyChanged():
            return policy_changed(node, policy, event)
        case ResizeRefused() | Promoted():
            return of_desired(node, event, policy)
        case Released(reason, configuration):
            return release(node, reason, configuration)
        case CardReported():
            return _reported(node, event)
    asked, policy = policy, Keeping(Lifting(LET_GO)) if node.released else complete(policy)
    match event:
        case TopologyChanged(topology, pods_cgroup):
            known = node.replace(pods_cgroup=pods_cgroup) if pods_cgroup else node
            return topology_changed(known, topology, policy)
        case Found():
            return adopt(node, event, policy)
        case _:
            decision = _remembered(_of_workload(node, event, policy), event, asked)
            arrives = isinstance(event, ContainerCreated)  # its message was sent before: compare with that
            return _trimmed(node, decision, policy) if decision.node.kept and not arrives else decision


def _reported(node: Node, event: CardReported) -> Decision:
    if event.incident is None:
        incidents = without(node.incidents, (event.key,)) if event.key in node.incidents else node.incidents
    else:
        same = node.incidents.get(event.key) == event.incident
        incidents = node.incidents if same else with_entries(node.incidents, {event.key: event.incident})
    return Decision(node if incidents is node.incidents else node.replace(incidents=incidents))


def _trimmed(before: Node, decision: Decision, policy: Keeping) -> Decision:
    """Return the *decision* without kept CPUs beyond the pod's total, which another sandbox may have changed."""
    after = policy.trimmed(decision.node)
    if after is decision.node:
        return decision
    return replace(decision, node=after, updates=updates_between(before, after))


def _remembered(decision: Decision, event: WorkloadEvent, asked: Policy) -> Decision:
    """Return the decision about a resize; if the policy was not asked, mark the container for promotion."""
    if isinstance(event, ContainerResized) and isinstance(asked, Fallback):
        return replace(decision, node=to_be_promoted(decision.node, Miss.BYPASSED, [event.key]))
    return decision


def _of_workload(node: Node, event: WorkloadEvent, policy: Keeping) -> Decision:  # noqa: PLR0911 (one for each event)
    """Apply an event about one pod or container."""
    match event:
        case PodStopped() | PodGone():
            return _pod_ended(node, event, policy)
        case PodCreated() | PodResized() | PodNotReady():
            return of_pod(node, event, policy)
        case ContainerCreating(container):
            return _creating(node, container, policy)
        case ContainerCreated():
            return _created(node, event, policy)
        case ContainerStarted(key) | UnknownOutcome(key):
            return Decision(_advanced(node, key, event), key=key)
        case ColdStartEnded(key):
            return _warmed(node, key, policy)
        case ContainerExited(key) | ContainerGone(key):
            return _release(node, _advanced(node, key, event), policy, key)
        case UpdateApplied(key, applied):
            return _applied(node, key, applied)
        case ContainerResized():
            return _resized(node, event, policy)


def _pod_ended(node: Node, event: PodStopped | PodGone, policy: Keeping) -> Decision:
    is_gone = isinstance(event, PodGone)
    known = node.replace(pods=without(node.pods, (event.key,))) if is_gone else stopped(node, event.key)
    ended = advanced(known, node.containers_of(event.key), TRANSITIONS[type(event)])
    return of_pod_ended(_release(node, ended, policy), node, policy)


def _advanced(node: Node, key: str, event: Event) -> Node:
    """Return the node after *event* about the container *key*."""
    return advanced(node, [node.containers[key]] if key in node.containers else (), TRANSITIONS[type(event)])


def placing(node: Node, event: Event, policy: Policy) -> tuple[Node, Container] | None:
    """Return the arguments of `Policy.place` when *event* is applied to *node*; None if no container is placed.

    For explanations of the decision afterwards.
    """
    keeping = complete(policy)
    match event:
        case ContainerCreating(new):
            beside = node.containers_of(new.pod)
            if _twin(beside, new):
                return None
            known, container = _with_new(node, beside, new, keeping)
            known = elsewhere(known, container, last_blocked(node, _older(beside, new)), keeping) or known
        case ContainerResized(key, sizes, total) if key in node.grants and key in node.containers:
            container = node.containers[key].resized(sizes)
            known = with_total(node, container.pod, total)
            if container.same_cpu(node.containers[key].sizes) and known is node:
                return None
            known = counted(known.replace(containers=with_entries(node.containers, {key: container})), container.pod)
            container = known.containers[key]
        case _:
            return None
    shown = keeping.shown(known, container)
    return None if shown is None else (shown, container)


def _twin(beside: Sequence[Container], new: Container) -> Container | None:
    """Return the container whose create *new* repeats, of those *beside* it in its pod."""
    alive = (c for c in beside if not ignores(c, ContainerCreating))
    return next((c for c in alive if c.identity == new.identity), None)


def _with_new(node: Node, beside: Sequence[Container], new: Container, policy: Policy) -> tuple[Node, Container]:
    """Return the node including *new*, and *new* as the node has it."""
    ended = advanced(node, _older(beside, new), LATER_ATTEMPT)
    freed = _release(node, ended, policy).node if ended is not node else node
    container = new
    if new.state is not ContainerState.CREATING or new.reservation != new.key:
        container = replace(new, state=ContainerState.CREATING, reservation=new.key)
    known = freed.replace(containers=with_entries(freed.containers, {container.key: container}))
    known, _ = recounted(known, container.pod, policy, arrives=True)
    return known, known.containers[container.key]


def _older(beside: Sequence[Container], new: Container) -> list[Container]:
    """Return the earlier attempts of *new*, of those *beside* it in its pod."""
    return [c for c in beside if c.name == new.name and c.attempt < new.attempt]


def _creating(node: Node, new: Container, policy: Policy) -> Decision:
    beside = node.containers_of(new.pod)
    if twin := _twin(beside, new):
        return _repeated(node, new, twin, policy)
    known, container = _with_new(node, beside, new, policy)
    why = last_blocked(node, _older(beside, new))
    view = elsewhere(known, container, why, policy)
    layout = with_pages(known, policy.place(view or known, container), container.key)
    grants, applied = entries_of(known.grants, layout.grants), known.applied
    grant = grants.get(container.key)
    if grant:  # the create message contains it, so the runtime applies it
        applied = with_entries(applied, {container.key: granted(grant)})
    elif container.stays:  # it will run on all CPUs for as long as it exists, also when others are placed again
        applied = with_entries(applied, {container.key: known.anywhere})
    after = known.replace(grants=grants, applied=applied, kept=layout.kept)
    reasons = (*layout.reasons_about(container.key), *([Reason(container.key, why.text)] if view else []))
    return Decision(after, updates_between(node, after), reasons, container.key)


def _repeated(node: Node, new: Container, twin: Container, policy: Policy) -> Decision:
    """Give *new* the place of *twin*, whose create it repeats; place it again if its pod was resized in between."""
    reasons: tuple[Reason, ...] = (Reason(twin.key, f"{new.title} repeats a create and inherits its place"),)
    after = node
    if not twin.has_id and twin.sizes != new.sizes:
        resized = _resized(node, ContainerResized(twin.key, new.sizes), policy)
        after, reasons = resized.node, (*reasons, *resized.reasons)
    after = _with_both_sent(after, twin.key)
    return Decision(after, updates_between(node, after), reasons, twin.key)


def _with_both_sent(node: Node, key: str) -> Node:
    """Return the node in which *key* may have the CPUs of its first create message, or of the second one."""
    grant, applied = node.grants.get(key), node.applied.get(key)
    if grant is None or applied is None or grant.cpus <= applied.cpus:
        return node
    either = replace(applied, cpus=applied.cpus | grant.cpus)
    return node.replace(applied=with_entries(node.applied, {key: either}))


def _created(node: Node, event: ContainerCreated, policy: Policy) -> Decision:
    reservation, key = event.reservation, event.key
    if reservation not in node.containers:
        known = _advanced(node, key, event)
        if (container := known.containers.get(key)) and has_given_way(known, container):
            return _release(known, advanced(known, [container], LATER_ATTEMPT), policy, key)
        return Decision(known, key=key)
    container = node.containers[reservation]
    state = state_after(container, TRANSITIONS[ContainerCreated])
    after = node.replace(
        containers=renamed(node.containers, reservation, key, replace(container, key=key, state=state)),
        grants=renamed(node.grants, reservation, key),
        applied=renamed(node.applied, reservation, key),
        former=renamed(node.former, reservation, key) if node.former else None,
    )
    if container.stays and (grant := after.grants.get(key)) and not owns_all(grant):
        after = after.replace(grants=without(after.grants, (key,)))  # a shared container would have to move for others
    # While it had no id, it could not be updated when others arrived: the cpuset in its message may be outdated.
    return Decision(after, updates_between(node, after, arrived=key), key=key)


def _resized(node: Node, event: ContainerResized, policy: Policy) -> Decision:
    key, sizes = event.key, event.sizes
    container = node.containers.get(key)
    if container is None or ignores(container, ContainerResized):
        return Decision(node, key=key)
    known = with_total(node, container.pod, event.cpu_total_milli)
    if container.sizes == sizes and not container.desired and known is node:
        return Decision(node, key=key)
    is_same_cpu = container.same_cpu(sizes) and known is node
    before, container = container, container.resized(sizes)
    known = known.replace(containers=with_entries(node.containers, {key: container}))
    if key not in node.grants:  # unplaced, and stays so
        return Decision(known, key=key)
    try:
        # If the CPU size is unchanged, do not place it again: a shared container must not be refused for lack of CPUs.
        if not is_same_cpu:
            known, _ = recounted(known, container.pod, policy, must=True)
            container = known.containers[key]
        placed = Layout(known.grants) if is_same_cpu else policy.place(known, container)
    except Refused:
        if not is_believed(before, sizes):
            raise
        known = node.replace(containers=with_entries(node.containers, {key: with_memory_of(before, sizes)}))
        placed = Layout(known.grants)
    layout = with_room(known, placed, key, policy)
    after = known.replace(grants=entries_of(known.grants, layout.grants), kept=layout.kept)
    if node.grants[key].exclusive and not after.grants[key].exclusive:  # its siblings may share too many CPUs now
        after = apart_again(after, container, policy)
    return Decision(after, updates_between(node, after), layout.reasons_about(key), key)


def _warmed(node: Node, key: str, policy: Policy) -> Decision:
    container = node.containers.get(key)
    if container is None or container.warm or ignores(container, ColdStartEnded):
        return Decision(node, key=key)
    container = replace(container, warm=True)
    known = node.replace(containers=with_entries(node.containers, {key: container}))
    if key not in node.grants:  # unplaced, and stays so
        return Decision(known, key=key)
    try:
        layout = policy.place(known, container)
    except Refused as error:  # it runs, so it stays where it is
        text = f"{container.title} stays after its cold start: {error}"
        return Decision(known, reasons=(Reason(key, text),), key=key)
    after = known.replace(grants=entries_of(known.grants, layout.grants), kept=layout.kept)
    return Decision(after, updates_between(node, after), layout.reasons_about(key), key)


def _applied(node: Node, key: str, applied: Applied) -> Decision:
    if ignores(node.containers.get(key), UpdateApplied) or node.applied.get(key) == applied:
        return Decision(node)
    if node.released:
        return Decision(let_go(node, key, applied), key=key)
    return Decision(node.replace(applied=with_entries(node.applied, {key: applied})), key=key)


def _release(before: Node, after: Node, policy: Policy, key: str | None = None) -> Decision:
    """Release the grants of all containers that are gone or have exited in *after*."""
    reasons: tuple[Reason, ...] = ()
    for holder in before.grants if key is None else before.grants.keys() & {key}:
        container = after.containers.get(holder)
        if container is None or container.state is ContainerState.EXITED:
            if before.grants[holder].exclusive and holder in before.containers:
                after = _after_owner(before, after, before.containers[holder], policy)
            layout = policy.release(after, holder)
            after = after.replace(grants=entries_of(after.grants, layout.grants))
            reasons += layout.reasons_about(None)
            if key is None or key not in before.containers:
                continue
            ended = before.containers[key]
            failed = ended.reservation == key
            if before.grants[holder].exclusive:
                moved = apart_again(after, ended, policy)
                after = moved if failed else _kept_as_before(after, moved, ended, policy)
            if ended.of_pod or failed:  # a create that comes to nothing gives its siblings back what they gave it
                after, _ = recounted(after, ended.pod, policy)
    return Decision(after, updates_between(before, after), reasons, key)


def _after_owner(before: Node, after: Node, ended: Container, policy: Policy) -> Node:
    """Return the node *after* an exclusive container has *ended*, with the CPUs that are kept for its pod."""
    why, pod = blocked(before, ended), before.pods.get(ended.pod)
    if not why.used or pod is None:
        return with_leaver(after, ended, before.grants[ended.key].exclusive, policy)
    return with_kept_of(after, pod.uid, after.kept.get(pod.uid, NOTHING).less(ended.name, why.granted))


def _kept_as_before(before: Node, moved: Node, ended: Container, policy: Policy) -> Node:
    """Return the node in which siblings have *moved* off CPUs of an *ended* container, which are kept for it."""
    pod = moved.pods.get(ended.pod)
    if moved.kept == before.kept or not isinstance(policy, Keeping) or not pod or pod.uid not in before.kept:
        return moved
    kept = within_total(before.kept[pod.uid], owned_by(moved, pod.uid), pod, moved)
    made = policy.changed(moved, with_kept_of(moved, pod.uid, kept).kept)
    return made if policy.options.within(made).shared_cpus else moved
