"""Resizes that passed unseen: the sizes in force are those of the runtime, whatever the kubelet asked us for.

During `criproxy bypass on` every call passes untouched, an in-place resize, too. The kubelet believes afterwards that
the new size is in force and does not ask again, so the runtime is asked instead.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import time

from criproxy.control.containers.cgroups import Seen
from criproxy.control.context import Context
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import if_reported
from criproxy.cri.sizes import sizes_in_force
from criproxy.engine.decision import Decision
from criproxy.engine.events import ContainerResized, ResizeRefused
from criproxy.errors import CriproxyError
from criproxy.model.record import Kind
from criproxy.model.workload import Container, ContainerState, Sizes
from criproxy.observe.tasks import batches

AT_ONCE = 16
"""Containers whose sizes are asked for side by side."""


async def follow_sizes(context: Context, items: Sequence[api.Container], is_touched: Callable[..., bool]) -> bool:
    """Place those of a list anew whose CPU or memory is another, but for those touched since it was made.

    Returns:
        Whether the runtime reported the sizes of all.

    Raises:
        RuntimeCallError: if the runtime cannot be asked.
    """
    is_complete = True
    known = [item for item in items if _alive(context, item.id)]
    for some in batches(known, AT_ONCE):
        answers = await asyncio.gather(*(_reported(context, item.id) for item in some))
        is_complete &= None not in answers
        for item, answer in zip(some, answers, strict=True):
            container, reply = _alive(context, item.id), answer and answer[1]
            if container and reply and not is_touched(item.id, item.pod_sandbox_id):
                _resized(context, container, reply)
    return is_complete


async def _reported(context: Context, key: str) -> tuple[Seen, api.ContainerStatusResponse | None] | None:
    # The inner call is made only here: one that `gather` cancels before its first step would never be awaited.
    return await if_reported(context.cgroups.ask(key))


def _alive(context: Context, key: str) -> Container | None:
    container = context.state.node.containers.get(key)
    return container if container and container.state is not ContainerState.EXITED else None


def _resized(context: Context, container: Container, reply: api.ContainerStatusResponse) -> None:
    has = sizes_in_force(reply.status.resources.linux, container, context.state.node.topology.capacity_bytes)
    # What the kubelet still asks for is not in force: if it is, the kubelet asks no more.
    waits_for = container.desired.sizes if container.desired and container.desired.told else container.sizes
    if _alike(has, container.sizes) or _alike(has, waits_for):
        return
    context.state.note(container, Kind.RESIZED, "it was resized while criproxy did not see calls")
    believe(context, container.key, has)


def believe(context: Context, key: str, sizes: Sizes) -> None:
    """Place the container *key* anew by the *sizes* that runtime and kubelet believe in force.

    Where there is no room for them any more, the kubelet does not ask again: it gets them as soon as there is.
    """

    def placed(done: "asyncio.Future[Decision]") -> None:
        if isinstance(done.exception(), CriproxyError):
            context.state.submit(ResizeRefused(key, sizes, time(), believed=True))

    context.state.submit(ContainerResized(key, sizes)).add_done_callback(placed)


def _alike(one: Sizes, other: Sizes) -> bool:
    """Whether two sizes are the same but for what a runtime does not report, such as a request for memory."""
    return replace(one, memory_request_bytes=None) == replace(other, memory_request_bytes=None)
