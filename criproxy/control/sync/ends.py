"""Whether a container has ended: one function for everything that says so beside calls, and how far each is believed.

Two readers are not here, since it is by them that a cut start is resolved: `Outcomes.resolve_outcome`, and a worker of
the reconciler under the container's lock. Both ask the runtime about one container alone, after all that is known of
it, and that answer looks into the cgroup.
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
"""How long others wait for the end of what is in flight at a container that may have ended."""
AT_ONCE = 16
"""Containers that are asked about side by side."""
QUESTION = "a question of criproxy"
"""What holds a container's lock meanwhile."""


class Evidence(Enum):
    """What says that a container has ended."""

    LISTED = "a list calls it exited"
    UNLISTED = "a list does not have it"
    NEVER_TO_START = "lists have it as created, and its sandbox as ended"
    STOPPED = "an event of its end calls it exited"
    DELETED = "an event of its removal"


Claim = tuple[Container, Evidence]
"""A container as it was before the evidence was requested."""


async def judge_each(context: Context, claims: Sequence[Claim]) -> None:
    """End those that have ended, side by side: a create may wait for all of them, and each for what is in flight there.

    Raises:
        RuntimeCallError: about one of them, after the others were judged.
    """
    for some in batches(claims, AT_ONCE):
        judged = await asyncio.gather(*(ended(context, *claim) for claim in some), return_exceptions=True)
        for error in judged:
            if isinstance(error, BaseException):
                raise error


async def ended(context: Context, container: Container, evidence: Evidence) -> bool:
    """End *container* if *evidence* is to be believed, and return whether it is.

    | Evidence | its start was not cut and has left no processes | nothing in flight or new | its cgroup |
    |---|---|---|---|
    | LISTED | must be so | must be so, before and after the next | has no processes |
    | UNLISTED, NEVER_TO_START | must be so | must be so | there is none |
    | STOPPED | must be so | is so: events come in their order | is not asked for, others' events wait |
    | DELETED | no matter: nothing that runs is deleted | as above | there is none |

    Raises:
        RuntimeCallError: if the runtime cannot be asked where the cgroup of a listed one is. Where it fails for this
            one alone, the list is believed of a container whose start had ended well.
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
    """Whether nothing has happened to *container* since it looked like this, after what is in flight has ended.

    A start of the kubelet is not waited for: its container is just beginning. Nor is what takes long, such as an
    update that hangs in the runtime: others wait for this answer, and what holds the lock reads the cgroup then.
    """
    if context.in_flight.is_sent(container.key):
        return False
    with suppress(TimeoutError):
        async with asyncio.timeout(LOCK_S), context.locks.of(container.key, QUESTION):
            return context.state.node.containers.get(container.key) is container
    return False


async def _has_no_processes(context: Context, container: Container) -> bool:
    """Whether the runtime says again that *container* has ended, its cgroup agrees, and nothing happened meanwhile."""
    asked = await if_reported(context.cgroups.ask(container.key))
    has_ended = container.state is ContainerState.RUNNING if asked is None else asked[0].ended
    return has_ended and await undisturbed(context, container)
