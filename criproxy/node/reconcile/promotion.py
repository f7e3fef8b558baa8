"""Promotion: give containers later what they should have had, a size that was refused or exclusive CPUs.

The engine decides whether there is room; this module decides which container is tried, and when. No container is tried
while the disk, the policy or the runtime fails: these failures are the reasons why containers were not placed.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import time

from criproxy.cri.runtime import RuntimeCallError
from criproxy.model.grant import Grant
from criproxy.model.node import Node, changed_keys
from criproxy.model.record import Kind
from criproxy.model.workload import MAY_RUN, Container, ContainerState
from criproxy.node.context import Context
from criproxy.node.record.policy_failures import PolicyFailed
from criproxy.node.record.refusals import RefusedResizes
from criproxy.node.settings import Promote
from criproxy.placement.answers.shortfalls import shortfall
from criproxy.placement.checked_policy import PolicyFault
from criproxy.placement.engine import step
from criproxy.placement.events import ColdStartEnded, ContainerResized, Promoted
from criproxy.placement.options.pod_wishes import cold_for_s
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.pod_total import asks_milli
from criproxy.placement.rules.promotion import is_where_granted
from criproxy.process.tasks import OnDemand, wait_at_most

_PLACEABLE = MAY_RUN | {ContainerState.CREATED}


@dataclass(slots=True)
class Promotions:
    """Promotes containers whenever the node has changed.

    Args:
        context: has the node and the settings.
        refused: the resizes that had no room.
        is_ready: whether the runtime has listed what runs.
    """

    context: Context
    refused: RefusedResizes
    is_ready: Callable[[], bool]
    _known: Mapping[str, Container] = field(default_factory=dict)
    _waiting: set[str] = field(default_factory=set)
    """Keys of the containers in `_known` that may need a promotion, so that a change does not cost a pass over all."""
    _lacks: dict[str, tuple[Container, bool]] = field(default_factory=dict)
    """By key: a container as it was when the policy was asked whether it should have more, and the answer."""
    _asked: Policy | None = None
    """The policy that gave these answers."""
    _on_the_way: dict[str, Grant] = field(default_factory=dict)
    """By key: the places that containers have got, and have not been moved to yet."""
    _worker: OnDemand = field(init=False)

    def __post_init__(self) -> None:
        self._worker = OnDemand(self.context.tasks, "promote containers", self._promote)

    def look(self) -> None:
        """Look at a change of the node: end refusals, and begin to try the containers that should have more."""
        self._update(self.context.state.node)
        if self._has_candidates():
            self._worker.now()

    async def _promote(self) -> None:
        """Try the containers that should have more; retry those that do not fit after the node has changed."""
        state, tried = self.context.state, None
        while self._has_candidates():
            node = state.node
            if node is not tried and self._may_try():
                await self._try_all(node)
                tried = node
                await asyncio.sleep(self.context.settings.promote_quiet_s)
            if state.node is node:  # a candidate may wait for something else, like the disk
                await wait_at_most(self.context.settings.promote_pause_s, state.changed())
            self._update(state.node)

    def _update(self, node: Node) -> None:
        """Update which of the containers that have changed may need a promotion, and end refusals of resizes."""
        for key in changed_keys(self._known, node.containers):
            container = node.containers.get(key)
            waits = container is not None and (container.missed or container.desired)
            (self._waiting.add if waits else self._waiting.discard)(key)
            if not waits:
                self._on_the_way.pop(key, None)
        self._known, state = node.containers, self.context.state
        waiting = [node.containers[key] for key in self._waiting]
        for key in self.refused.silent(waiting, time(), self.context.settings.resize_silence_s):
            state.note(key, Kind.RESIZED, "the kubelet no longer repeats the refused resize: it was withdrawn")
            state.submit(ContainerResized(key, node.containers[key].sizes))

    def _has_candidates(self) -> bool:
        """Whether any container may have to be tried."""
        return bool(self._waiting) or self.context.settings.promote is Promote.WHEN_FREE

    def _may_try(self) -> bool:
        state, error = self.context.state, self.context.persister.error
        return error is None and not state.places_nobody and not state.node.released and self.is_ready()

    async def _try_all(self, node: Node) -> None:
        state, wanted = self.context.state, self.context.settings.promote
        keys = list(node.containers if wanted is Promote.WHEN_FREE else self._waiting)
        for key in await asyncio.to_thread(self._fitting, node, keys, state.policy):
            if not self._may_try():
                return
            with suppress(PolicyFailed, PolicyFault):  # counted, and reported by the next that asks it
                before = state.node.containers.get(key)
                now = (await state.apply(Promoted(key))).node
                after = now.containers.get(key)
                self.context.counters.promotions += before is not after and key not in self._on_the_way
                if after and after.missed and key in now.grants:
                    self._on_the_way[key] = now.grants[key]

    def _fitting(self, node: Node, keys: Iterable[str], policy: Policy) -> list[str]:
        """Return those of *keys* for which there is room on *node*, the longest waiting first. This is slow."""
        if policy is not self._asked:
            self._asked, self._lacks = policy, {}
        self._lacks = {key: self._lacks[key] for key in self._lacks.keys() & node.containers.keys()}
        candidates = (node.containers[key] for key in keys if self._may_get_more(node, node.containers[key], policy))
        return [one.key for one in sorted(candidates, key=_since_s) if _fits(node, one.key, policy)]

    def _may_get_more(self, node: Node, container: Container, policy: Policy) -> bool:
        """Whether *container* should have more according to policy and settings; the policy is asked once for each."""
        wanted, grant = self.context.settings.promote, node.grants.get(container.key)
        if grant is None or container.state not in _PLACEABLE:
            return False
        if container.desired and container.desired.told:
            return True
        if container.is_owed_a_place:
            waits = self._on_the_way.get(container.key) is grant and not is_where_granted(node, container)
            return wanted is not Promote.OFF and not waits
        if wanted is not Promote.WHEN_FREE or asks_milli(node, container) // 1000 <= len(grant.exclusive):
            return False
        before = self._lacks.get(container.key)
        if before is None or before[0] is not container:
            before = container, shortfall(node, policy, container.key) is not None
            self._lacks[container.key] = before
        return before[1]


def _fits(node: Node, key: str, policy: Policy) -> bool:
    try:
        return step(node, Promoted(key), policy).node is not node
    except Exception:  # noqa: BLE001 (a policy that fails gives no container more)
        return False


def _since_s(container: Container) -> float:
    came = container.desired or container.missed
    return came.since_s if came else 0.0


@dataclass(slots=True)
class ColdStarts:
    """Waits for the end of each cold start."""

    context: Context
    _known: Mapping[str, Container] = field(default_factory=dict)
    _waiting: set[str] = field(default_factory=set)
    """Keys of containers."""

    def look(self) -> None:
        """Look at a change of the node: start a task for each new cold start, which waits for its end."""
        node = self.context.state.node
        for key in changed_keys(self._known, node.containers):
            if key not in self._waiting and (duration_s := cold_for_s(node, key)):
                self._waiting.add(key)
                self.context.tasks.forever("end cold starts", partial(self._end, key, duration_s))
        self._known = node.containers

    async def _end(self, key: str, duration_s: float) -> None:
        await asyncio.sleep(max(0.0, duration_s - await self._ran_s(key)))
        await self.context.state.apply(ColdStartEnded(key))
        self._waiting.discard(key)

    async def _ran_s(self, key: str) -> float:
        """Return for how many seconds the container has run; 0 if the runtime does not report that."""
        try:
            status = (await self.context.runtime.container_status(key)).status
        except RuntimeCallError:
            return 0.0
        return max(0.0, time() - status.started_at / 1e9) if status.started_at else 0.0
