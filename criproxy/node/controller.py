"""The node's controller: builds its parts and connects them."""

import asyncio
from functools import partial
from importlib import import_module

from criproxy.cri.pods import SOCKET, Pods
from criproxy.cri.runtime import RuntimeClient
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.node.bypass import BypassMode
from criproxy.node.calls.create import Creates
from criproxy.node.calls.intercepted_calls import Handlers
from criproxy.node.calls.on_error import CallFallback
from criproxy.node.calls.start import Starts
from criproxy.node.calls.status_replies import Replies
from criproxy.node.calls.update import Updates
from criproxy.node.cgroups import Cgroups
from criproxy.node.configuration.agent_report import AgentReport
from criproxy.node.configuration.policy_switch import PolicySwitch
from criproxy.node.context import UPDATE_OTHERS, Context
from criproxy.node.counters import Counters, NodeUse
from criproxy.node.devices.guard import DeviceGuard
from criproxy.node.devices.incidents import Incidents
from criproxy.node.devices.plugin import CardUsage, DevicePlugin
from criproxy.node.in_flight import InFlight, unseen_starts
from criproxy.node.locks import Locks
from criproxy.node.reconcile.controls_client import MARK, ControlsClient
from criproxy.node.reconcile.controls_map import ControlsMap
from criproxy.node.reconcile.reconciler import Reconciler
from criproxy.node.reconcile.throttling import ThrottleWatch
from criproxy.node.record.persister import Persister
from criproxy.node.record.refusals import RefusedResizes
from criproxy.node.record.state import NodeState
from criproxy.node.settings import InForce, Settings
from criproxy.node.sync.adopt import Adoption, BypassTimes
from criproxy.node.sync.drift import Drift, Gone
from criproxy.node.sync.ends import Inheritance
from criproxy.node.sync.hotplug import Hotplug
from criproxy.node.sync.outcomes import Outcomes
from criproxy.node.sync.resync import UNKNOWN, Resync
from criproxy.node.sync.unseen import Newcomers, PlacingSince
from criproxy.placement.policies.api import Policy
from criproxy.process.failures import Failures, SafeLog
from criproxy.process.logger import Log
from criproxy.process.tasks import Tasks
from criproxy.store.store import Store
from criproxy.wire.calls import Table

_WATCHERS = ("sync.exit_events", "reconcile.promotion")
"""Modules that are imported in the background: they are not needed for the first calls."""
_PASSING = "an operator has switched the bypass on"
"""Why nobody is moved until it is off."""


class Controller:
    """Places the containers of one node.

    Args:
        settings: limits and switches.
        topology: the machine, and which part of it pods may use.
        policy: with `NonePolicy`, no call is held or watched, and the runtime is not asked.
        store: keeps the node across restarts; read once, here.
        runtime: for criproxy's own calls; `stop` closes it.
        log: a structlog logger.
    """

    def __init__(
        self, settings: Settings, topology: Topology, policy: Policy, store: Store, runtime: RuntimeClient, log: Log
    ) -> None:
        counters, failures = Counters(), Failures(log=log)
        log = SafeLog(log, failures)
        node, last_tasks = store.load(topology), Tasks(log, failures)  # these end last, by `Persister.close`
        persister = Persister(node, store, settings.store, counters, log, failures, last_tasks)
        state = NodeState(node, policy, persister, counters, log, failures, last_tasks)
        self.context = context = Context(
            state=state,
            persister=persister,
            runtime=runtime,
            pods=Pods(settings.host_root / SOCKET),
            in_flight=(in_flight := InFlight(state.notify, settings.lost_after_s)),
            cgroups=Cgroups(runtime, settings.host_root, in_flight, settings.moves_created),
            locks=Locks(),
            tasks=Tasks(log, failures),
            in_force=InForce(settings),
            failures=failures,
            counters=counters,
            log=log,
        )
        # What the device plugin, the watcher and the node's agent report:
        self.device_plugin, self.card_usage, self.agent = DevicePlugin(), CardUsage(), AgentReport()
        self.devices, self.throttling = DeviceGuard(context), ThrottleWatch(context)
        self._bypass_times, self._placing_since = BypassTimes(), PlacingSince(context, store)
        self.reconciler, self.refused_resizes, inheritance = Reconciler(context), RefusedResizes(), Inheritance()
        self.gone, self.node_use = Gone(context, self.reconciler), NodeUse(settings.host_root)
        self.desired_controls = ControlsMap(context, lambda: self.ready)
        self.controls = ControlsClient(context, self.desired_controls, store.directory / MARK)
        self.outcomes = outcomes = Outcomes(context, self.reconciler, inheritance=inheritance)
        self.hotplug = Hotplug(context)  # no change since the discovery is missed
        self.incidents = Incidents(context, self.devices.users, self.device_plugin, self._edits_changed)
        adoption = Adoption(context, self.reconciler, self.devices, self._bypass_times, self._placing_since)
        self.resync = Resync(context, self.reconciler, outcomes, adoption, self.devices)
        self.policy_switch = PolicySwitch(context, self.reconciler, self.resync, self._begin)
        self.updates = updates = Updates(context, self.reconciler, outcomes, self.refused_resizes)
        creates = Creates(context, self.reconciler, outcomes, self.devices, inheritance, self.hotplug, updates)
        starts = Starts(context, self.reconciler, outcomes, self.resync, self.controls)
        self.handlers = Handlers(context, outcomes, self.resync, self.devices, inheritance, creates, starts, updates)
        self.fallback = CallFallback(context, creates, starts, lambda: self.ready)
        self.replies = Replies(context, self.incidents, self._edits_changed)

    @property
    def node(self) -> Node:
        """The node as it is now."""
        return self.context.state.node

    @property
    def ready(self) -> bool:
        """Whether held calls are decided: the runtime's containers are known, or no call is held."""
        return self.resync.is_ready or not self.policy_switch.active

    @property
    def problem(self) -> str | None:
        """What prevents the controller from working, in one sentence; None if nothing does."""
        if not self.ready:
            return "the runtime has not reported yet what is running"
        error = self.context.persister.error
        return None if error is None else str(error)

    async def start(self) -> None:
        """Begin to find out what runs. Return at once; calls that need the answer wait for it."""
        self.context.tasks.watch_callbacks()
        self.policy_switch.start()
        self.context.state.looks.add("follow classes", self.controls.look)
        self.context.tasks.spawn("follow classes", self.controls.begin(self.known))

    def _begin(self) -> None:
        """Find out what runs, and from then on detect changes that no call reports."""
        context = self.context
        self.reconciler.holds.add(UNKNOWN)
        context.state.looks.add("follow lifted quotas", self.replies.update)
        context.state.looks.add("observe throttling", self.throttling.look)
        for key in context.in_flight.inherit(context.state.node):
            self.outcomes.start_unknown(key)
        # The store has the node of the last run: CPUs may be gone since then.
        context.state.submit(self.hotplug.at_start())
        context.tasks.forever("resync", self.resync.run)
        context.runtime.on_unavailable = self.resync.soon
        self.hotplug.start()
        context.tasks.forever("watch", self._watch)
        context.tasks.forever("scan for cards", self._begin_devices)

    async def _watch(self) -> None:
        """Start the parts that detect changes without a call of the kubelet; they run until the tasks are stopped."""
        for part in _WATCHERS:
            await asyncio.to_thread(import_module, f"criproxy.node.{part}")
        from criproxy.node.reconcile.promotion import ColdStarts, Promotions
        from criproxy.node.sync.exit_events import ExitEvents

        context = self.context
        exits, drift = ExitEvents(context, self.outcomes), Drift(context, self.reconciler, self.hotplug)
        promotions = Promotions(context, self.refused_resizes, lambda: self.ready)
        context.tasks.forever("follow events", exits.follow)
        context.tasks.forever("list exited containers", exits.list_regularly)
        context.tasks.forever("watch cgroups", drift.watch)
        newcomers = Newcomers(context, partial(self.resync.again, thorough=False))
        context.tasks.forever("watch for new containers", newcomers.watch)
        context.state.looks.add("end cold starts", ColdStarts(context).look)
        context.state.looks.add("promote containers", promotions.look)

    async def known(self) -> None:
        """Wait until the running containers and their cards are known; return at once if no call is held."""
        if self.policy_switch.active:
            await self.devices.begin()
            await self.resync.first()

    async def _begin_devices(self) -> None:
        await self.devices.begin()
        await self.resync.first()  # containers that ended while criproxy was not running must not be stopped
        self.incidents.follow()

    def _edits_changed(self) -> None:
        self.policy_switch.changed()  # an attribute that is set after the start

    def runtime_lost(self) -> None:
        """Resync as soon as possible: criproxy may have missed something, such as a restart of the runtime.

        Or a resize, if the runtime asks criproxy: it goes on without an answer, and asks nobody while there is none.
        """
        if self.policy_switch.active:
            self.resync.soon(sizes=not self.context.settings.moves_created)

    def table(self) -> Table:
        """Return which calls are held, watched and edited; it changes whenever `PolicySwitch.changed` is called."""
        if not self.policy_switch.active:
            return {}
        edits = self.replies.shows_quotas or self.incidents.edits
        edited = self.replies.table(streams_only=not edits) if edits or self.devices.rules else {}
        return {**self.handlers.table(), **edited}

    def bypass(self, mode: BypassMode) -> None:
        """Set the bypass mode; when the bypass ends, the runtime is asked what runs before any container is placed."""
        state, holds = self.context.state, self.reconciler.holds
        state.bypassed, state.is_passing = mode is BypassMode.AUTOMATIC, mode is BypassMode.ORDERED
        if state.is_passing:
            state.passes_all = True
            self._bypass_times.begin()
            holds.add(_PASSING)
        else:
            self._bypass_times.end()
        if mode is BypassMode.OFF and self.policy_switch.active:
            if _PASSING in holds:
                holds.add(UNKNOWN)
            self.resync.invalidate(sizes=state.passes_all)
            for key in unseen_starts(self.node) if state.passes_all else ():
                self.outcomes.start_unknown(key)  # it comes up with the CPUs that it had before
            state.passes_all = False
        if not state.is_passing and _PASSING in holds:
            holds.discard(_PASSING)
            self.reconciler.enqueue([*self.node.grants], read=True)  # if it is known what runs
        state.notify()  # the agent, and whoever waited for its end, such as a stop for a quota

    async def idle(self) -> None:
        """Wait until no start or update is in flight, and everything is published and on disk, or the disk fails.

        An update that waits until a create is on disk is in flight: it is sent after the reply to that create.
        """
        await self.context.tasks.until_ended(UPDATE_OTHERS)
        while self.context.in_flight.sent() or self.reconciler.at_work:
            await self.context.state.changed()
        await self.context.state.flush()

    async def stop(self) -> None:
        """End background work after all submitted events are stored; the calls must have ended before."""
        await self.context.tasks.stop()
        await self._placing_since.flush()
        await self.devices.close()
        await self.context.pods.close()
        await self.context.state.close()
        await self.context.runtime.close()
