"""Whether containers are placed: the policy in force, another one at any time, and the release of all containers.

With the policy none nothing is held or watched, unless there are rules about devices, or places from before that have
to be given back. Containers that came unseen are found before another policy decides anything.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from criproxy.control.context import Context
from criproxy.control.reconcile.lifted_quotas import LiftedQuotas
from criproxy.control.reconcile.reconciler import Reconciler
from criproxy.control.settings import Settings
from criproxy.control.sync.resync import NotReady, Resync
from criproxy.engine.decision import Decision
from criproxy.engine.events import PolicyChanged, Released
from criproxy.engine.release import is_settled, outcome_of, successor
from criproxy.engine.reserved import owned_by_pod
from criproxy.errors import StoreError, UsageError
from criproxy.model.cpuset import CpuSet
from criproxy.model.last_configuration import LastConfiguration
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState
from criproxy.policy.api import Policy
from criproxy.policy.none import NonePolicy
from criproxy.policy.options import options_of

LEARN_S = 5.0
"""How long a change of the policy waits for a list of the containers that came unseen."""
SETTLE_S = 20.0
"""How long the command waits for its updates; they go on after that."""
GIVEN_UP = 2
"""An update that failed so often is not waited for; it is tried again all the same."""


@dataclass(slots=True)
class PolicySwitch:
    """Switches policies; `changed` is called whenever what is held, or `Node.released`, may differ."""

    context: Context
    reconciler: Reconciler
    resync: Resync
    begin: Callable[[], None]
    """Called when something is held for the first time: find out what runs."""
    changed: Callable[[], None] = lambda: None
    active: bool = False
    """Whether calls are held and watched."""
    edits: bool = False
    """Whether replies are edited: only while a quota is lifted or may be lifted at any time."""
    reserved_later: Mapping[str, CpuSet] = field(default_factory=dict)
    """Which reserved CPUs were exclusive to pods when the policy in force, with ``apply: new``, reserved them."""
    _lifted: LiftedQuotas = field(default_factory=LiftedQuotas)
    _begun: bool = False
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One change after the other."""

    @property
    def places(self) -> bool:
        """Whether the policy is another than none."""
        return not isinstance(self.context.state.policy, NonePolicy)

    @property
    def _is_needed(self) -> bool:
        """Whether there is anything to hold or watch calls for."""
        return self.places or bool(self.context.settings.devices) or bool(self._node.grants)

    def start(self) -> None:
        """Begin to find out what runs, and go on as the node was left; returns at once."""
        self._see_reserved(self._node, apply_all=self.context.settings.apply_all)
        if self._is_needed:
            self.context.tasks.forever("go on as the node was left", self._go_on_when_known)
            self._activate()
        else:
            self._go_on()

    async def change(self, policy: Policy, settings: Settings) -> Decision:
        """Go on with another *policy* and other *settings*; ends a release, unless the configuration is that of before.

        Where no calls were held before, they are from now on, and the runtime is asked what runs; only then the policy
        decides. Not earlier: it would place containers on CPUs on which unknown ones run. But not later than `LEARN_S`
        either: a runtime that is away would keep the new file out of force, and held calls wait for its answer anyway,
        so that no new container is placed before it. Calls that are held at this moment are decided by the policy that
        is in force when their event has its turn: events keep their order, so no call is decided by a mixture of both.

        Raises:
            PolicyFailed: the policy failed at the containers that run; everything is as before.
        """
        async with self._one:
            if not self.active and (settings.devices or not isinstance(policy, NonePolicy)):
                await self._learn()
            await self._see_disk()
            before = LastConfiguration.parse(self._node.configuration)
            apply_all = settings.apply_all or before.is_undone
            same = before.keeps_release(settings.configuration)  # it was away for as long as its file was bad
            event = PolicyChanged(apply_all, settings.configuration, keeps_release=same)
            decision = await asyncio.shield(self.context.state.submit(event, policy))
            self.context.in_force.settings = settings
            self._see_reserved(decision.node, apply_all=apply_all)
            self.context.state.stir()  # what waits for a node without holds may go on
            if self.active:
                self.resync.soon()  # what becomes of others' containers may be another thing now
            self.changed()
            await self._stored()
            return decision

    async def use_devices(self, settings: Settings) -> None:
        """Go on with other *settings* for devices, which concern no container's place: also during a release."""
        async with self._one:
            self.context.in_force.settings = settings
            if self.active:
                self.resync.soon()  # more containers may have a card of a known class
            self.changed()

    async def command(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``criproxy release``: argument ``undo``.

        Raises:
            UsageError: the policy is none, so that there is nothing to go back to.
        """
        return await (self.undo() if arguments.get("undo") else self.release(asked_for()))

    async def release(self, reason: str) -> dict[str, Any]:
        """Release all containers; returns what became of each, as plain data, after `SETTLE_S` at the latest."""
        async with self._one:
            self.reconciler.holds = not self.active  # nobody is moved for what is found now: all are released next
            try:
                if not self.active:
                    await self._learn()
                before = self._node
                decision = await self.context.state.apply(Released(reason, self.context.settings.configuration))
            finally:
                self.reconciler.holds = False
                self.reconciler.enqueue([*self._node.grants])
            self.changed()
            await self._stored()
        answer = await self._answer(before, decision.node)
        if not self.resync.is_ready:
            answer["not_seen"] = self.resync.error or "the runtime has not answered yet"
        left = sum(row["outcome"] == "left" for row in answer["containers"])
        count = len(answer["containers"])
        self.context.log.warning("released: no container is placed", containers=count, left=left, reason=reason)
        return answer

    async def undo(self) -> dict[str, Any]:
        """Place all containers again; returns what became of each, as plain data.

        Raises:
            UsageError: the policy is none.
        """
        if not self.places:
            raise UsageError("the policy is none: there is nothing to go back to; name another one in the policy file")
        async with self._one:
            before = self._node
            if not before.released:
                return await self._answer(before)
            await self._see_disk()
            event = PolicyChanged(apply_all=True, configuration=self.context.settings.configuration)
            self.reserved_later = {}
            decision = await asyncio.shield(self.context.state.submit(event, self.context.state.policy))
            self.changed()
            await self._stored()
        self.context.log.warning("the release is over: containers are placed", containers=len(decision.node.grants))
        return await self._answer(before, decision.node)

    async def undo_later(self) -> dict[str, Any]:
        """Let the next daemon place all containers: for when none runs.

        Raises:
            StoreError: that cannot be stored, so that the release goes on.
        """
        before = self._node
        if before.released:
            undone = LastConfiguration.parse(before.configuration).undone
            await self.context.state.apply(PolicyChanged(configuration=undone.format()))
            try:
                await self.context.persister.durable()
            except StoreError as error:
                raise StoreError(f"the release stays in effect, since its end could not be stored: {error}") from error
        return await self._answer(before)

    @property
    def _node(self) -> Node:
        return self.context.state.node

    async def _go_on_when_known(self) -> None:
        while not self.resync.is_ready:
            with suppress(NotReady):
                # First in line: what is submitted right after this comes before all calls that wait for it, too.
                await self.resync.ready()
        async with self._one:  # a release that is on its way to the disk would be ended by what we saw before it
            await self._see_disk()
            self._go_on()
        self.changed()

    async def _see_disk(self) -> None:
        """Know whether the disk works before a release ends: where it does not, nobody newly owns CPUs."""
        if self._node.released:
            await self.context.persister.check()

    async def _stored(self) -> None:
        """Return when what was decided is on disk; where it cannot be, it counts in memory, and `_answer` says so."""
        with suppress(StoreError):
            await self.context.persister.durable()

    def _go_on(self) -> None:
        """Notice a configuration that was changed while we were away, and containers without a place since then."""
        node, settings = self._node, self.context.settings
        self._see_reserved(node, apply_all=settings.apply_all)
        if node.configuration != settings.configuration or (self.places and not node.released and _has_unplaced(node)):
            # Where nothing is known of the last one, the state is new or was lost: that moves no container.
            known = node.configuration not in ("", settings.configuration)
            before = LastConfiguration.parse(node.configuration)
            apply_all = known and (settings.apply_all or before.is_undone)
            same = before.keeps_release(settings.configuration)
            event = PolicyChanged(apply_all, settings.configuration, keeps_release=same)
            self.context.state.submit(event).add_done_callback(lambda _: self.changed())

    def _see_reserved(self, node: Node, *, apply_all: bool) -> None:
        """Note which pods stay on CPUs that the policy in force reserves; none, where it places all anew."""
        reserved = options_of(self.context.state.policy).reserved(node.topology)
        self.reserved_later = {} if apply_all else owned_by_pod(node, reserved)

    async def _learn(self) -> None:
        """Hold calls from now on, and find out what runs; a runtime that is away is asked in the background."""
        self.resync.invalidate()
        self._activate()
        with suppress(TimeoutError, NotReady):
            async with asyncio.timeout(LEARN_S):
                await self.resync.ready()  # first in line, as above

    def _activate(self) -> None:
        self.active = True
        self._see_quotas()
        if not self._begun:
            self._begun = True
            self.begin()
            self.context.tasks.forever("follow lifted quotas", self._follow_quotas)
            self.context.tasks.forever("hold calls until no container has a place", self._idle)
        self.changed()

    def _see_quotas(self) -> None:
        edited, node = self.edits, self._node
        may_lift = options_of(self.context.state.policy).cpu_quota == "lift" and not node.released
        self.edits = self._lifted.any(node) or may_lift
        if self.edits is not edited:
            self.changed()

    async def _follow_quotas(self) -> None:
        """Have replies edited from before the first update that lifts a quota to after the last that restores one."""
        while True:
            self._see_quotas()
            await self.context.state.changed()

    async def _idle(self) -> None:
        """With the policy none, hold and watch calls for only as long as any container has a place."""
        while True:
            if self.active and not self._is_needed:
                async with self._one:  # a change in progress holds calls for what is to come
                    if not self._is_needed:
                        self.active = False
                        self.changed()
                        self.context.state.stir()
            await self.context.state.changed()

    async def _answer(self, before: Node, after: Node | None = None) -> dict[str, Any]:
        """What became of each container with a place in *after*, a row each, once nothing more will happen soon.

        Without *after*, nothing was to be done.
        """
        placed = [after.containers[key] for key in after.grants] if after else []
        outcome = "released" if after and after.released else "placed"
        waiting = placed
        with suppress(TimeoutError):  # what is not done by then is left
            async with asyncio.timeout(SETTLE_S):
                while waiting := [each for each in waiting if self._moves(each)]:
                    await self.context.state.changed()
        node, troubles = self._node, self.reconciler.troubles()
        return {
            "was_released": before.released,
            "released": node.released,
            "places": self.places,
            "containers": [outcome_of(container, before, node, outcome, troubles) for container in placed],
            "not_remembered": str(self.context.persister.error or ""),
            "not_seen": "",
        }

    def _moves(self, container: Container) -> bool:
        """Whether an update to *container* is still to come and has not failed too often to wait for."""
        now = successor(self._node, container)
        if now is None or is_settled(self._node, now.key):
            return False
        return self.reconciler.trouble(now.key).failures < GIVEN_UP


def asked_for() -> str:
    """The reason of a release that is asked for now."""
    return f"criproxy release, {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}"


def _has_unplaced(node: Node) -> bool:
    """Whether a container that has not ended has no place, and is not only watched."""
    without = (container for key, container in node.containers.items() if key not in node.grants)
    return any(c.state is not ContainerState.EXITED and not node.is_watched(c.key) for c in without)
