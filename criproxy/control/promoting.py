"""Gives containers later what they should have had: the size that was refused to the attempt before, exclusive CPUs.

The engine decides whether there is room; here is who is tried, and when. Nothing is tried while the disk, the policy or
the answer of the runtime fails: these are the very reasons why somebody came without.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from criproxy.control.followups import Followups
from criproxy.control.manager import PolicyFailed
from criproxy.control.settings import Promote
from criproxy.control.shortfalls import shortfalls
from criproxy.engine.events import Promoted
from criproxy.engine.guard import PolicyFault
from criproxy.engine.step import step
from criproxy.model.node import Node
from criproxy.model.workload import MAY_RUN, Container, ContainerState
from criproxy.policy.api import Policy

_PLACEABLE = MAY_RUN | {ContainerState.CREATED}


@dataclass(slots=True)
class Promotions:
    """Looks for room whenever the node has changed.

    Args:
        followups: the node, and updates to those who make room.
        is_ready: whether the runtime has told what runs.
    """

    followups: Followups
    is_ready: Callable[[], bool]

    async def watch(self) -> None:
        """Try those who should have more, for ever; one who does not fit is tried again when the node has changed."""
        manager, tried = self.followups.manager, None
        while True:
            node = manager.node
            if node is not tried and _anybody(node, self.followups.settings.promote) and self._may_try():
                await self._try_all(node)
                tried = node
            if manager.node is node:
                await self._pause(node)

    def _may_try(self) -> bool:
        manager = self.followups.manager
        is_well = manager.store_error is None and not manager.bypassed
        return is_well and not manager.node.released and self.is_ready()

    async def _pause(self, node: Node) -> None:
        """Until the node has changed; not for ever while somebody waits for what is no part of it, such as the disk."""
        limit_s = self.followups.settings.promote_pause_s if _anybody(node, self.followups.settings.promote) else None
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.followups.manager.changed()

    async def _try_all(self, node: Node) -> None:
        manager = self.followups.manager
        for key in await asyncio.to_thread(_fitting, node, manager.policy, self.followups.settings.promote):
            if not self._may_try():
                return
            with suppress(PolicyFailed, PolicyFault):  # counted, and told by whoever asks it next
                before = manager.node
                after = (await self.followups.apply(Promoted(key))).node
                manager.counters.promotions += before.containers.get(key) is not after.containers.get(key)


def _anybody(node: Node, wanted: Promote) -> bool:
    """Whether somebody on *node* may have to be tried."""
    return wanted is Promote.WHEN_FREE or any(one.missed or one.desired for one in node.containers.values())


def _fitting(node: Node, policy: Policy, wanted: Promote) -> list[str]:
    """The keys of those for whom there is room on *node*, who waits longest first; slow, since it asks the policy."""
    keys = dict.fromkeys(_candidates(node, policy, wanted))
    return [key for key in keys if _fits(node, key, policy)]


def _fits(node: Node, key: str, policy: Policy) -> bool:
    try:
        return step(node, Promoted(key), policy).node is not node
    except Exception:  # noqa: BLE001 (a policy that fails gives nobody more)
        return False


def _candidates(node: Node, policy: Policy, wanted: Promote) -> Iterator[str]:
    there = [one for one in node.containers.values() if one.state in _PLACEABLE and one.key in node.grants]
    came = [one for one in there if _grows(one) or (one.missed and wanted is not Promote.OFF)]
    yield from (one.key for one in sorted(came, key=_since_s))
    if wanted is Promote.WHEN_FREE:
        placeable = {one.key for one in there}
        yield from (one.key for one in shortfalls(node, policy) if one.key in placeable)


def _grows(container: Container) -> bool:
    return container.desired is not None and container.desired.told


def _since_s(container: Container) -> float:
    came = container.desired or container.missed
    return came.since_s if came else 0.0
