"""Resizes during a bypass: the sizes in force are those that the runtime reports.

During `criproxy bypass on` every call passes unchanged, including in-place resizes. Afterwards the kubelet believes
that the new size is in force and does not request it again, so the runtime is queried instead.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import time

from criproxy.cri import api_pb2 as api
from criproxy.cri.sizes import sizes_in_force
from criproxy.errors import CriproxyError
from criproxy.model.record import Kind
from criproxy.model.workload import Container, ContainerState, Sizes
from criproxy.node.cgroups import AT_ONCE
from criproxy.node.context import Context
from criproxy.placement.decision import Decision
from criproxy.placement.events import ContainerResized, ResizeRefused
from criproxy.process.tasks import batches


async def follow_sizes(context: Context, items: Sequence[api.Container], is_touched: Callable[..., bool]) -> bool:
    """Place the containers of a list again whose CPU or memory has changed, except those touched since the list.

    Those with a call under way are left out, since the runtime may still report their former sizes.

    Returns:
        Whether the sizes of all other containers are known.

    Raises:
        RuntimeCallError: the runtime does not answer.
    """
    is_complete = True
    for some in batches(items, AT_ONCE):
        known = ((item, _alive(context, item.id)) for item in some)
        asked = [(item, one) for item, one in known if one and not context.locks.busy(item.id)]
        answers = await asyncio.gather(*(context.cgroups.reported(item.id) for item, _ in asked))
        for (item, container), answer in zip(asked, answers, strict=True):
            now, reply = _alive(context, item.id), answer and answer[1]
            if answer is None:
                is_complete = False
            elif now is None or reply is None or context.locks.busy(item.id):
                continue
            elif now is not container:
                is_complete = False  # the answer may be from before that change
            elif not is_touched(item.id, item.pod_sandbox_id):
                _resized(context, container, reply)
    return is_complete


def _alive(context: Context, key: str) -> Container | None:
    container = context.state.node.containers.get(key)
    return container if container and container.state is not ContainerState.EXITED else None


def _resized(context: Context, container: Container, reply: api.ContainerStatusResponse) -> None:
    node = context.state.node
    total = node.total_of(container)
    has = sizes_in_force(reply.status.resources.linux, container, node.topology.capacity_bytes, total)
    # A size that the kubelet still requests is not in force: otherwise it would have stopped requesting it.
    waits_for = container.desired.sizes if container.desired and container.desired.told else container.sizes
    if _alike(has, container.sizes) or _alike(has, waits_for):
        return
    context.state.note(container, Kind.RESIZED, "it was resized while criproxy did not see calls")
    believe(context, container.key, has)


def believe(context: Context, key: str, sizes: Sizes, total_milli: int = 0) -> None:
    """Place the container *key* again with the *sizes* that are in force for the runtime and the kubelet.

    *total_milli* is the CPU of its pod, if that changes as well.

    If there is no room for them, the kubelet does not repeat the resize: the container gets them as soon as there is.
    """

    def placed(done: "asyncio.Future[Decision]") -> None:
        if isinstance(done.exception(), CriproxyError):
            context.state.submit(ResizeRefused(key, sizes, time(), believed=True))

    context.state.submit(ContainerResized(key, sizes, total_milli)).add_done_callback(placed)


def _alike(one: Sizes, other: Sizes) -> bool:
    """Whether two sizes are equal except for what a runtime does not report, such as the memory request."""
    return replace(one, memory_request_bytes=None) == replace(other, memory_request_bytes=None)
