"""Whether a container has ended without a call: one function for all kinds of evidence, and how far each is believed.

Two other readers are separate, because they resolve cut starts: `Outcomes.resolve_outcome`, and a worker of the
reconciler under the container's lock. Both query the runtime about one container, later than everything that is known
of it, and also read its cgroup.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from time import monotonic

from criproxy.cri.runtime import RuntimeCallError, if_reported
from criproxy.model.cpuset import CpuSet
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState
from criproxy.node.cgroups import AT_ONCE, Seen
from criproxy.node.context import Context
from criproxy.placement.events import ContainerExited, ContainerGone
from criproxy.placement.rules.kept import by_name
from criproxy.process.tasks import batches

LOCK_S = 0.5
"""How long to wait for what is in flight at a container that may have ended."""
ASK_S = 2.0
"""How long to wait for all answers about containers that one list lacks; the next list asks about the others."""
LISTS = 2
"""For how many pauses of ``unknown_pause_s`` lists must lack a container about which nothing else can be learnt."""
QUESTION = "a question of criproxy"
"""The holder of a container's lock meanwhile; see `Locks.enter`."""
INHERIT_S = 10.0
"""How long after the end of the former sandbox a new one inherits."""


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
    until_s, missed = asyncio.get_running_loop().time() + ASK_S, context.in_flight.unlisted_s
    # Those that no list lacked before come first: answers about the others may not come, and must not prevent theirs.
    for some in batches(sorted(claims, key=lambda claim: missed(claim[0].key)), AT_ONCE):
        judged = await asyncio.gather(*(ended(context, *claim, until_s) for claim in some), return_exceptions=True)
        for error in judged:
            if isinstance(error, BaseException):
                raise error


async def ended(context: Context, container: Container, evidence: Evidence, until_s: float = inf) -> bool:
    """Apply the end of *container* if *evidence* can be believed, and return whether it can.

    | Evidence | its start was not cut and has left no processes | nothing in flight or new | its cgroup |
    |---|---|---|---|
    | LISTED | required | required, before and after the next check | has no processes |
    | UNLISTED | required | required, before and after the next check | has no processes; see `_is_missing` |
    | NEVER_TO_START | required | required | there is none |
    | STOPPED | required | holds: events arrive in order | not read, since other events wait |
    | DELETED | not needed: no running container is deleted | as above | there is none |

    Args:
        context: the parts of the controller.
        container: as it was before the evidence was requested.
        evidence: that it has ended.
        until_s: how long the runtime may take to confirm that an unlisted container is gone, on the loop's clock.

    Raises:
        RuntimeCallError: the runtime does not report where the cgroup of a listed container is. If it fails for this
            container alone, the list is believed if the container was running.
    """
    key, in_flight = container.key, context.in_flight
    believes_exit = not in_flight.is_start_unknown(key) and not in_flight.is_left(key)
    ended_s = await _ended_s(context, container) if evidence is Evidence.LISTED else 0.0
    match evidence:
        case Evidence.DELETED:
            is_believed, is_gone, how = True, True, "events"
        case Evidence.STOPPED:
            is_believed, is_gone, how = believes_exit, False, "events"
        case _:
            is_believed = believes_exit and await undisturbed(context, container)
            if evidence is Evidence.LISTED:
                is_believed = is_believed and await _has_no_processes(context, container)
            elif evidence is Evidence.UNLISTED:
                is_believed = is_believed and await _is_missing(context, container, until_s)
            is_gone, how = evidence is Evidence.UNLISTED, "lists"
    if is_believed:
        await context.state.end(ContainerGone(key) if is_gone else ContainerExited(key, ended_s), how)
    return is_believed


async def _ended_s(context: Context, container: Container) -> float:
    """Return when a listed container has ended, if it had no place until then: a list may be from much later."""
    if not (container.missed and container.missed.since_s):
        return 0.0
    reply = await if_reported(context.runtime.container_status(container.key))
    return reply.status.finished_at / 1e9 if reply else 0.0


async def undisturbed(context: Context, container: Container) -> bool:
    """Whether *container* is unchanged after everything in flight there has ended.

    This does not wait for a start by the kubelet: its container is about to run. Nor does it wait long, for example for
    an update that hangs in the runtime: others wait for this answer, and the holder of the lock reads the cgroup later.
    With NRI, the update may wait for the answer about a start that itself waits for this.
    """
    limit_s = min(LOCK_S, context.settings.barrier_timeout_s)
    if context.in_flight.is_sent(container.key):
        return False
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s), context.locks.of(container.key, QUESTION):
            return context.state.node.containers.get(container.key) is container
    return False


async def _has_no_processes(context: Context, container: Container) -> bool:
    """Whether a query confirms that *container* has ended, including its cgroup, and it is unchanged since."""
    asked = await context.cgroups.reported(container.key)
    has_ended = container.state is ContainerState.RUNNING if asked is None else asked[0].ended
    return has_ended and await undisturbed(context, container)


async def _is_missing(context: Context, container: Container, until_s: float) -> bool:
    """Whether *container*, which a list lacks, is gone, and is unchanged since; if not, remember that lists lack it.

    A runtime that has just started may list nothing for a moment, while all containers run. So the cgroup decides or,
    where criproxy does not know it, the runtime's status. Where neither can be had, lists that lack the container
    for some time must do: it could not be forgotten otherwise. One that has exited holds no place, and is not checked.
    """
    if container.state is ContainerState.EXITED:
        return True
    key, in_flight = container.key, context.in_flight
    is_populated = await context.cgroups.is_populated(key)
    if is_populated is not None:
        is_gone = not is_populated
    elif asyncio.get_running_loop().time() >= until_s:
        return False
    elif (seen := await _status(context, key, until_s)) is not None:
        is_gone = seen.ended
    else:
        is_gone = in_flight.unlisted_s(key) >= LISTS * context.settings.unknown_pause_s
    is_gone = is_gone and await undisturbed(context, container)
    if not is_gone and context.state.node.containers.get(key) is container:
        in_flight.miss(key)
    return is_gone


async def _status(context: Context, key: str, until_s: float) -> Seen | None:
    """Return the state of a container as the runtime reports it; None if it does not."""
    with suppress(RuntimeCallError, TimeoutError):
        async with asyncio.timeout_at(until_s):
            return (await context.cgroups.ask(key))[0]
    return None


@dataclass(slots=True)
class Inheritance:
    """Remembers the CPUs of ended sandboxes for a short time.

    Args:
        clock: a monotonic clock, in seconds.
    """

    clock: Callable[[], float] = monotonic
    _left: dict[str, tuple[float, Mapping[str, CpuSet]]] = field(default_factory=dict)
    """By UID of the pod: when its sandbox ended, and the CPUs that it had then, by container name."""

    def ended(self, node: Node, key: str) -> None:
        """Record that the sandbox *key* ends; *node* is the state before that. The last end counts."""
        pod, now_s = node.pods.get(key), self.clock()
        self._left = {uid: left for uid, left in self._left.items() if now_s - left[0] <= INHERIT_S}
        if pod is None or not pod.uid:
            return
        had = {**self.of(pod.uid), **by_name(node, pod.uid)}
        if had:
            self._left[pod.uid] = now_s, had

    def of(self, uid: str) -> Mapping[str, CpuSet]:
        """Return the CPUs that a new sandbox of the pod *uid* inherits now, by container name."""
        at_s, had = self._left.get(uid, (0.0, {}))
        return had if self.clock() - at_s <= INHERIT_S else {}
