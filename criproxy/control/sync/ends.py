"""Whether a container has ended without a call: one function for all kinds of evidence, and how far each is believed.

Two other readers are separate, because they resolve cut starts: `Outcomes.resolve_outcome`, and a worker of the
reconciler under the container's lock. Both query the runtime about one container, later than everything that is known
of it, and also read its cgroup.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum

from criproxy.control.context import Context
from criproxy.cri.runtime import if_reported
from criproxy.engine.events import ContainerExited, ContainerGone
from criproxy.model.workload import Container, ContainerState
from criproxy.observe.tasks import batches

LOCK_S = 0.5
"""How long to wait for what is in flight at a container that may have ended."""
AT_ONCE = 16
"""Containers that are queried concurrently."""
QUESTION = "a question of criproxy"
"""The holder of a container's lock meanwhile; see `Locks.enter`."""


class Evidence(Enum):
    """The kinds of evidence that a container has ended."""

    LISTED = "a list calls it exited"
    UNLISTED = "a list does not have it"
    NEVER_TO_START = "lists have it as created, and its sandbox as ended"
    STOPPED = "an event of its end calls it exited"
    DELETED = "an event of its removal"


Claim = tuple[Container, Evidence]
"""A container as it was before the evidence was requested."""


async def judge_each(context: Context, claims: Sequence[Claim]) -> None:
    """Apply the ends of all containers that have ended; concurrently, since a create may wait for all of them.

    Raises:
        RuntimeCallError: the query about one of them failed; raised after the others were judged.
    """
    for some in batches(claims, AT_ONCE):
        judged = await asyncio.gather(*(ended(context, *claim) for claim in some), return_exceptions=True)
        for error in judged:
            if isinstance(error, BaseException):
                raise error


async def ended(context: Context, container: Container, evidence: Evidence) -> bool:
    """Apply the end of *container* if *evidence* can be believed, and return whether it can.

    | Evidence | its start was not cut and has left no processes | nothing in flight or new | its cgroup |
    |---|---|---|---|
    | LISTED | required | required, before and after the next check | has no processes |
    | UNLISTED, NEVER_TO_START | required | required | there is none |
    | STOPPED | required | holds: events arrive in order | not read, since other events wait |
    | DELETED | not needed: no running container is deleted | as above | there is none |

    Raises:
        RuntimeCallError: the runtime does not report where the cgroup of a listed container is. If it fails for this
            container alone, the list is believed if the container was running.
    """
    key, believes_exit = container.key, context.in_flight.is_exit_believed(container.key)
    match evidence:
        case Evidence.DELETED:
            is_believed, is_gone, how = True, True, "events"
        case Evidence.STOPPED:
            is_believed, is_gone, how = believes_exit, False, "events"
        case _:
            is_believed = believes_exit and await undisturbed(context, container)
            if evidence is Evidence.LISTED:
                is_believed = is_believed and await _has_no_processes(context, container)
            is_gone, how = evidence is Evidence.UNLISTED, "lists"
    if is_believed:
        await context.state.end(ContainerGone(key) if is_gone else ContainerExited(key), how)
    return is_believed


async def undisturbed(context: Context, container: Container) -> bool:
    """Whether *container* is unchanged after everything in flight there has ended.

    This does not wait for a start by the kubelet: its container is about to run. Nor does it wait long, for example for
    an update that hangs in the runtime: others wait for this answer, and the holder of the lock reads the cgroup later.
    """
    if context.in_flight.is_sent(container.key):
        return False
    with suppress(TimeoutError):
        async with asyncio.timeout(LOCK_S), context.locks.of(container.key, QUESTION):
            return context.state.node.containers.get(container.key) is container
    return False


async def _has_no_processes(context: Context, container: Container) -> bool:
    """Whether a query confirms that *container* has ended, including its cgroup, and it is unchanged since."""
    asked = await if_reported(context.cgroups.ask(container.key))
    has_ended = container.state is ContainerState.RUNNING if asked is None else asked[0].ended
    return has_ended and await undisturbed(context, container)
