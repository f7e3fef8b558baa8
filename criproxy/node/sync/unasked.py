"""Containers that started while criproxy was not asked, and run outside of their places since.

Where no container is moved before it runs (`Settings.moves_created`), it starts on the CPUs of its create, of which
others may have got some since. If criproxy is asked about the start, it refuses it while an owner runs there. If not,
whoever runs outside of its place from that start on counts as not placed, until it is moved.
"""

from collections.abc import Sequence

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import if_reported
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Applied
from criproxy.model.record import Kind
from criproxy.model.workload import Container, ContainerState
from criproxy.node.cgroups import Seen
from criproxy.node.context import Context
from criproxy.placement.events import PlacesMissed
from criproxy.placement.records.history import unplaced_text

_STARTS = {ContainerState.CREATED, ContainerState.UNKNOWN}
"""States of a container of whose start criproxy knows nothing yet."""


async def list_unasked(context: Context, items: Sequence[api.Container], told: set[str]) -> None:
    """Call `note_unasked` for the containers of a list whose starts are not known.

    Raises:
        RuntimeCallError: the runtime does not answer.
    """
    told &= context.state.node.containers.keys()
    unknown = [item.id for item in items if _may_have_started(context, item)]
    async for key, (seen, reply) in context.cgroups.ask_each(unknown):
        await note_unasked(context, key, seen, reply, told)


async def note_unasked(
    context: Context, key: str, seen: Seen, reply: api.ContainerStatusResponse | None, told: set[str]
) -> None:
    """Note whether a container has started outside of its place, or on CPUs that others have not left.

    If created containers are moved, that is nobody who has a place; one that has none may have started and ended.

    Args:
        context: the parts of the controller.
        key: the container; if its start is known, or criproxy was asked about it, nothing is noted.
        seen: where it is.
        reply: what the runtime says about it.
        told: those that had ended, and were noted.

    Raises:
        RuntimeCallError: the runtime does not answer.
    """
    container = context.state.node.containers.get(key)
    if container is None or not _starts_unasked(context, container):
        return
    if reply is None or not reply.status.started_at or context.in_flight.is_sent(key):
        return
    since_s, until_s, is_marked = reply.status.started_at / 1e9, reply.status.finished_at / 1e9, _is_marked(container)
    if seen.state is ContainerState.RUNNING:
        if not context.settings.moves_created:
            await _note_running(context, key, seen.applied, since_s)
        elif is_marked:
            await context.state.apply(PlacesMissed((key,), since_s))
    elif seen.ended and key not in told and (is_marked or _beyond(context, key, context.state.node.applied.get(key))):
        told.add(key)
        note_ended(context, container, Kind.EXITED, since_s, until_s)


def note_ended(context: Context, container: Container, kind: Kind, since_s: float, until_s: float) -> None:
    """Note that *container* ran without its place from *since_s* to *until_s*, and ended before it was seen."""
    context.counters.unplaced_s += max(0.0, until_s - since_s)
    text = f"{unplaced_text(since_s, until_s)}; it ended before criproxy saw it"
    context.state.note(container, kind, text, unplaced_since_s=since_s, unplaced_until_s=until_s)


def _may_have_started(context: Context, item: api.Container) -> bool:
    known = context.state.node.containers.get(item.id)
    has_started = translate.state(item) in (ContainerState.RUNNING, ContainerState.EXITED)
    return has_started and known is not None and _starts_unasked(context, known)


def _starts_unasked(context: Context, known: Container) -> bool:
    return known.state in _STARTS and (_is_marked(known) or not context.settings.moves_created)


def _is_marked(known: Container) -> bool:
    """Whether the container was created without its place, and is not known to run, so that its end tells nothing."""
    return known.state is ContainerState.CREATED and known.missed is not None and known.missed.since_s > 0


async def _note_running(context: Context, key: str, has: Applied | None, since_s: float) -> None:
    """Mark *key* if it is outside of its place, and others that are on its own CPUs."""
    node = context.state.node
    missed = [key] if _is_marked(node.containers[key]) or _beyond(context, key, has) else []
    owned = node.grants[key].exclusive if key in node.grants else NO_CPUS
    for other in [other for other in node.grants if other != key and _is_on(context, other, owned)]:
        seen = await if_reported(context.cgroups.read(other)) or Seen(None)
        if seen.applied and seen.applied.cpus & owned:
            missed.append(other)
    if missed:
        await context.state.apply(PlacesMissed(tuple(missed), since_s))


def _beyond(context: Context, key: str, has: Applied | None) -> bool:
    """Whether *key* runs on CPUs that are not in its grant."""
    grant = context.state.node.grants.get(key)
    return grant is not None and has is not None and not has.cpus <= grant.cpus


def _is_on(context: Context, key: str, owned: CpuSet) -> bool:
    """Whether *key*, which shares, may be on CPUs that another has owned since."""
    node = context.state.node
    has, is_owner = node.applied.get(key), bool(node.grants[key].exclusive)
    runs = node.containers[key].state is ContainerState.RUNNING
    return runs and not is_owner and has is not None and bool(has.cpus & owned)
