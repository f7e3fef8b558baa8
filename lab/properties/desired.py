"""What must be true after an event about what a container should have and has not."""

from collections.abc import Iterator
from dataclasses import replace

from criproxy.model.cpuset import format_cpuset
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState, Desired
from criproxy.placement.decision import Decision
from criproxy.placement.engine import step
from criproxy.placement.events import Promoted, ResizeRefused
from criproxy.placement.policies.api import Policy


def refusal_moves_nobody(before: Node, event: ResizeRefused, decision: Decision) -> Iterator[str]:
    """A refused size is remembered, since its first refusal, and that is all."""
    after, old = decision.node, before.containers.get(event.key)
    if decision.updates or replace(after, containers=before.containers) != before:
        yield f"the refusal of a resize of {event.key} changes places"
    if old is None or old.state is ContainerState.EXITED:
        if after is not before:
            yield f"a resize of {event.key}, which is not there, was refused, and this is remembered"
        return
    new = after.containers[event.key]
    if after.containers != {**before.containers, event.key: replace(old, desired=new.desired)}:
        yield f"the refusal of a resize of {old.title} changes more than what it should have"
    if new.desired is None or new.desired.sizes != event.sizes:
        yield f"{old.title} should have {event.sizes} since its resize was refused, and {new.desired} is remembered"
    elif old.desired and old.desired.sizes == event.sizes and _is_more(old.desired, new.desired, event):
        yield f"{old.title} was refused the same size twice: {old.desired} is {new.desired} now"


def _is_more(old: Desired, new: Desired, event: ResizeRefused) -> bool:
    """Whether another thing has changed than that the kubelet believes, since *event*, that the size is in force."""
    return new != replace(old, told=old.told or event.believed)


def gives_what_was_wanted(before: Node, event: Promoted, policy: Policy, decision: Decision) -> Iterator[str]:
    """Somebody who is promoted gets what was owed, once, and no other pod pays for it."""
    after, key = decision.node, event.key
    if after is before:
        if decision.updates:
            yield f"the promotion of {key} changes nothing, and sends updates"
        return
    old, new = before.containers[key], after.containers[key]
    owed = old.resized(old.desired.sizes) if old.desired and old.desired.told else old
    if new != replace(owed, missed=None):
        yield f"{old.title} was promoted to {owed.sizes}, and is {new}"
    for other, grant in before.grants.items():
        has = after.grants[other].exclusive
        if before.containers[other].pod != old.pod and len(has) < len(grant.exclusive):
            lost = format_cpuset(grant.exclusive - has)
            yield f"{before.containers[other].title} owns CPUs {lost} no more since {old.title} was promoted"
    if step(after, event, policy).node is not after:
        yield f"{old.title} is promoted twice"
