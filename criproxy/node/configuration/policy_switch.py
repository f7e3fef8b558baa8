"""Switches the policy at run time, and releases all containers.

With the policy none, no call is held or watched, unless there are device rules, or grants from before that have to be
released. Containers that were created unseen are discovered before another policy decides.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from criproxy.errors import StoreError, UsageError
from criproxy.model.cpuset import CpuSet
from criproxy.model.node import LastConfiguration, Node, Places
from criproxy.model.workload import Container, ContainerState
from criproxy.node.context import Context
from criproxy.node.reconcile.reconciler import Reconciler
from criproxy.node.settings import InForce, Settings
from criproxy.node.sync.resync import NotReady, Resync
from criproxy.placement.decision import Decision
from criproxy.placement.events import PolicyChanged, Released
from criproxy.placement.invariants import owned_by_pod
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.rules import release
from criproxy.process.tasks import OnDemand, wait_at_most

DISCOVER_S = 5.0
"""How long a change of the policy waits for a list of the containers that were created unseen."""
UPDATES_S = 20.0
"""How long the command waits for its updates, which continue after that."""
GIVEN_UP = 2
"""The number of failures after which the command no longer waits for an update, which is still retried."""


@dataclass(slots=True)
class PolicySwitch:
    """Switches policies; `changed` is called whenever the table of held calls, or `Node.released`, may change."""

    context: Context
    reconciler: Reconciler
    resync: Resync
    begin: Callable[[], None]
    """Called when calls are held for the first time, to find out what runs."""
    changed: Callable[[], None] = lambda: None
    active: bool = False
    """Whether calls are held and watched."""
    reserved_later: Mapping[str, CpuSet] = field(default_factory=dict)
    """By pod: CPUs that were exclusive to it when the policy in force, with ``apply: new``, reserved them."""
    going_back: Places | None = None
    """Set before the start, if it ends a try: the places of the containers before that."""
    _begun: bool = False
    _deactivation: OnDemand = field(init=False)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serialises changes."""

    def __post_init__(self) -> None:
        self._deactivation = OnDemand(self.context.tasks, "stop to hold calls", self._deactivate)

    @property
    def places(self) -> bool:
        """Whether the policy is not none."""
        return not isinstance(self.context.state.policy, NonePolicy)

    @property
    def _is_needed(self) -> bool:
        """Whether calls have to be held or watched."""
        return self.places or bool(self.context.settings.devices) or bool(self._node.grants)

    def start(self) -> None:
        """Begin to find out what runs, and continue with the stored node. Return at once."""
        self._update_reserved(self._node, apply_all=self.context.settings.apply_all)
        if self._is_needed:
            self.context.tasks.forever("go on as the node was left", self._resume_when_known)
            self._activate()
        else:
            self._resume()

    async def change(self, policy: Policy, settings: Settings, back: Places | None = None) -> Decision:
        """Switch to another *policy* and other *settings*; end a release, unless the configuration is unchanged.

        If no calls were held before, they are from now on, and the runtime is asked what runs; only then the policy
        decides. Not earlier: it would place containers on CPUs on which unknown ones run. And not later than
        `DISCOVER_S`: a runtime that is away would keep the new file out of force, and held calls wait for its answer in
        any case, so that no new container is placed before it. Calls that are held at this moment are decided by the
        policy that is in force when their event is applied: events keep their order, so no call is decided by both.

        Args:
            policy: the new one.
            settings: the new ones.
            back: if a try ends, the places of the containers before it: they return to these, and a release goes on.

        Raises:
            PolicyFailed: the policy failed at the running containers; everything is unchanged.
        """
        async with self._one:
            if not self.active and (settings.devices or not isinstance(policy, NonePolicy)):
                await self._discover()
            await self._check_disk()
            event = event_for(self._node, settings, back)
            decision = await asyncio.shield(self.context.state.submit(event, policy))
            self.context.in_force.settings = settings
            self._update_reserved(decision.node, apply_all=event.apply_all)
            self.context.state.notify()  # `_look` may have to deactivate
            if self.active:
                self.resync.soon()  # the option `adopt` may have changed
            self.changed()
            await self._stored()
            return decision

    async def use_devices(self, settings: Settings) -> None:
        """Switch to other *settings* for devices, which do not affect placement; possible during a release, too."""
        async with self._one:
            self.context.in_force.settings = settings
            if self.active:
                self.resync.soon()  # more containers may have a card of a known class
            self.changed()

    async def command(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``criproxy release``: argument ``undo``.

        Raises:
            UsageError: the policy is none, so that there is no policy to return to.
        """
        return await (self.undo() if arguments.get("undo") else self.release(reason_now()))

    async def release(self, reason: str) -> dict[str, Any]:
        """Release all containers; return the outcome for each, as plain data, after `UPDATES_S` at the latest."""
        async with self._one:
            try:
                if not self.active:
                    # Discovered containers move no others: all are released next.
                    self.reconciler.holds.add("a release")
                    await self._discover()
                before = self._node
                decision = await self.context.state.apply(Released(reason, self.context.settings.configuration))
            finally:
                self.reconciler.holds.clear()  # also if it is unknown what runs
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
        """Place all containers again; return the outcome for each, as plain data.

        Raises:
            UsageError: the policy is none.
        """
        if not self.places:
            raise UsageError(_nothing_to_undo(self.context.in_force))
        async with self._one:
            before = self._node
            if not before.released:
                return await self._answer(before)
            await self._check_disk()
            event = PolicyChanged(True, self.context.settings.configuration, at_s=time.time())
            self.reserved_later = {}
            decision = await asyncio.shield(self.context.state.submit(event, self.context.state.policy))
            self.changed()
            await self._stored()
        self.context.log.warning("the release has ended: containers are placed", containers=len(decision.node.grants))
        return await self._answer(before, decision.node)

    async def undo_later(self) -> dict[str, Any]:
        """Store that the next daemon places all containers; for use when no daemon runs.

        Raises:
            StoreError: that cannot be stored, so that the release continues.
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

    async def _resume_when_known(self) -> None:
        while not self.resync.is_ready:
            with suppress(NotReady):
                # This waits first, so that its event comes before those of all calls that also wait.
                await self.resync.ready()
        async with self._one:  # the lock prevents that an event from before a release ends that release
            await self._check_disk()
            self._resume()
        self.changed()

    async def _check_disk(self) -> None:
        """Check the disk before a release ends: if it fails, no container newly gets exclusive CPUs."""
        if self._node.released:
            await self.context.persister.check()

    async def _stored(self) -> None:
        """Wait until the decision is on disk; if that fails, it stays in memory, and `_answer` reports that."""
        with suppress(StoreError):
            await self.context.persister.durable()

    def _resume(self) -> None:
        """Apply a configuration that has changed since the last run, and place containers that have no grant."""
        node, settings = self._node, self.context.settings
        event: PolicyChanged | None = None
        if node.configuration != settings.configuration or (self.places and not node.released and _has_unplaced(node)):
            # If the last configuration is unknown, the state is new or was lost: then no container moves.
            known = node.configuration not in ("", settings.configuration)
            event = event_for(node, settings, self.going_back)
            event = event if known else replace(event, apply_all=False)
        # Without an event nobody moves, not even with `apply: all`: who came during a try may be on a reserved CPU.
        self._update_reserved(node, apply_all=event is not None and event.apply_all)
        if event is not None:
            self.context.state.submit(event).add_done_callback(lambda _: self.changed())

    def _update_reserved(self, node: Node, *, apply_all: bool) -> None:
        """Update which pods stay on CPUs that the policy in force reserves; none if it places all containers again."""
        reserved = options_of(self.context.state.policy).reserved(node.topology)
        self.reserved_later = {} if apply_all else owned_by_pod(node, reserved)

    async def _discover(self) -> None:
        """Hold calls from now on, and find out what runs; if the runtime is away, that continues in the background."""
        self.resync.invalidate()
        self._activate()
        with suppress(NotReady):
            await wait_at_most(DISCOVER_S, self.resync.ready())  # before all calls, as in `_resume_when_known`

    def _activate(self) -> None:
        self.active = True
        if not self._begun:
            self._begun = True
            self.begin()
            self.context.state.looks.add("hold calls until no container has a place", self._look)
        self.changed()

    def _look(self) -> None:
        if self.active and not self._is_needed:
            self._deactivation.now()

    async def _deactivate(self) -> None:
        """Stop holding and watching calls when they are not needed: with the policy none and without grants."""
        async with self._one:  # a change in progress may need held calls
            if self.active and not self._is_needed:
                self.active = False
                self.changed()
                self.context.state.notify()

    async def _answer(self, before: Node, after: Node | None = None) -> dict[str, Any]:
        """Return the outcome for each container with a grant in *after*, one row each, after its update.

        After a release, also for those that it leaves where they are. Without *after*, there was nothing to do.
        """
        is_release = after is not None and bool(after.released)
        keys = dict.fromkeys([*after.grants, *(release.staying(after) if is_release else ())]) if after else {}
        placed = [after.containers[key] for key in keys] if after else []
        outcome = "released" if is_release else "placed"
        waiting = placed
        with suppress(TimeoutError):  # later updates are reported as left
            async with asyncio.timeout(UPDATES_S):
                while waiting := [each for each in waiting if self._moves(each)]:
                    await self.context.state.changed()
        node, troubles = self._node, self.reconciler.troubles()
        return {
            "was_released": before.released,
            "released": node.released,
            "places": self.places,
            "configuration": self.context.in_force.said(),
            "containers": [release.outcome_of(container, before, node, outcome, troubles) for container in placed],
            "not_remembered": str(self.context.persister.error or ""),
            "not_seen": "",
        }

    def _moves(self, container: Container) -> bool:
        """Whether an update of *container* is pending and has not failed too often to wait for it."""
        now = release.successor(self._node, container)
        if now is None or release.is_settled(self._node, now.key):
            return False
        return self.reconciler.trouble(now.key).failures < GIVEN_UP


def event_for(node: Node, settings: Settings, back: Places | None = None) -> PolicyChanged:
    """Return the event that brings *settings* into force on *node*; *back* as for `PolicySwitch.change`."""
    before = LastConfiguration.parse(node.configuration)
    if back is not None:
        keeps = release.is_released_by_request(node) and not before.is_undone
        return PolicyChanged(configuration=settings.configuration, keeps_release=keeps, back=back, at_s=time.time())
    same = before.keeps_release(settings.configuration)  # it may come back after its file was bad
    apply_all = settings.apply_all or before.is_undone
    return PolicyChanged(apply_all, settings.configuration, keeps_release=same, at_s=time.time())


def reason_now() -> str:
    """Return the reason of a release that is requested now."""
    return f"criproxy release, {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}"


def _nothing_to_undo(in_force: InForce) -> str:
    """Return why a release under the policy none cannot be undone, and what to do about it."""
    said = in_force.said()
    if said["until"] or said["kept"]:
        how = "which was kept" if said["kept"] else f"which is being tried until {said['until']}"
        return f"{said['file']}, {how}, has policy none: go back to the policy file first, with 'criproxy reload'"
    return "the policy is none: there is nothing to go back to; name another one in the policy file"


def _has_unplaced(node: Node) -> bool:
    """Whether any container that has not ended has no grant and is not only watched."""
    without = (container for key, container in node.containers.items() if key not in node.grants)
    return any(c.state is not ContainerState.EXITED and not node.is_watched(c.key) for c in without)
