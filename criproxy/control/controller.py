"""Builds the controller out of its parts, for the daemon, and decides what becomes of calls that we failed at."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from criproxy.config.fit import Fit
from criproxy.control.calls.create import Creates
from criproxy.control.calls.failed_calls import Failing
from criproxy.control.calls.start import Starts, Updates
from criproxy.control.calls.status import Replies
from criproxy.control.calls.table import Handlers
from criproxy.control.configuration.policy_switch import Modes
from criproxy.control.containers.cgroups import LEFT_RUNNING, Kernel
from criproxy.control.containers.locks import Lanes
from criproxy.control.counters import Counters
from criproxy.control.devices.guard import DeviceFault, DeviceGuard
from criproxy.control.failures import CarefulLog, Failures
from criproxy.control.node.persister import NodeStore
from criproxy.control.node.state import Heard, Manager
from criproxy.control.reconcile.reconciler import Followups
from criproxy.control.settings import Log, OnError, Settings
from criproxy.control.sync.outcomes import Inquiry
from criproxy.control.sync.resync import NotReady, Resync
from criproxy.control.sync.watchers import Watch
from criproxy.control.tasks import Tasks
from criproxy.cri.methods import BY_PATH
from criproxy.cri.runtime import RuntimeClient
from criproxy.cri.translate import UnreadableMessage, has_cpuset
from criproxy.engine.choice import Choice, Decided
from criproxy.engine.complete import complete
from criproxy.engine.events import TopologyChanged
from criproxy.errors import CriproxyError, StatusCode, for_kubelet
from criproxy.model.bounded import bounded_texts
from criproxy.model.cpuset import CpuSet
from criproxy.model.node import Node
from criproxy.model.topology import Topology
from criproxy.model.workload import Container, ContainerState
from criproxy.observe.bypass import BypassMode
from criproxy.policy.api import Policy, candidates_of
from criproxy.policy.options import options_of
from criproxy.store.record import Kind, Record
from criproxy.views.notices import Notice
from criproxy.views.shortfalls import shortfall
from criproxy.wire.calls import Call, Proceed, Refuse, Table, Verdict

if TYPE_CHECKING:  # both are loaded only when somebody asks: a start shall be fast
    from criproxy.observe.placing import Placing
    from criproxy.views.status import Situation


class Controller:
    """Places the containers of one node.

    Args:
        settings: limits and switches.
        topology: the machine, and which part of it pods may use.
        policy: with `NonePolicy` nothing is held, watched or asked.
        store: keeps the node over restarts; read once, here.
        runtime: for calls of our own; `stop` closes it.
        log: a structlog logger.
    """

    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        policy: Policy,
        store: NodeStore,
        runtime: RuntimeClient,
        log: Log,
    ) -> None:
        self.failures = Failures(log=log)
        """What failed in criproxy itself within the last hour."""
        self._log = log = CarefulLog(log, self.failures)
        self._runtime = runtime
        self.config_problem: str | None = None
        """Why the configuration in the file is not the one in force; None where it is."""
        self.config_instead = ""
        """What is in force in its place, in a sentence."""
        self._fit = Fit()
        self._passed_unseen = False
        """Whether calls passed by a bypass that somebody ordered, and nobody has asked since what they changed."""
        self._tasks = Tasks(log, self.failures)
        self._manager = Manager(store.load(topology), policy, store, log, settings.store, self.failures)
        kernel = Kernel(runtime, settings.host_root, settings.lost_after_s)
        self._followups = Followups(self._manager, runtime, kernel, Lanes(), self._tasks, settings, log)
        self._inquiry = inquiry = Inquiry(self._followups)
        self._watch = Watch(inquiry, lambda: self.ready)
        devices = DeviceGuard(self._followups)
        self._resync = Resync(self._followups, inquiry, devices)
        self.modes = Modes(self._followups, self._resync, self._begin)
        self._updates = Updates(self._followups, inquiry)
        self._creates = Creates(self._followups, inquiry, devices, self._updates.see_create)
        self._starts = Starts(self._followups, inquiry, self._resync)
        self._handlers = Handlers(self._followups, inquiry, self._resync, self._creates, self._starts, self._updates)
        self._failing = Failing(self._manager, self.failures)
        self._table = self._failing.told(self._handlers.table())
        self._edited = {**self._table, **self._failing.told(Replies(self._manager).table())}

    @property
    def settings(self) -> Settings:
        """Limits and switches in force; a reload brings others."""
        return self._followups.settings

    @property
    def devices(self) -> DeviceGuard:
        """Who knows the machine's cards, and who was given which."""
        return self._creates.devices

    @property
    def counters(self) -> Counters:
        """What has been counted since the start."""
        return self._manager.counters

    @property
    def node(self) -> Node:
        """The node as it is now."""
        return self._manager.node

    @property
    def ready(self) -> bool:
        """Whether held calls are decided: the runtime has been asked what runs, or nothing is held."""
        return self._resync.is_ready or not self.modes.active

    @property
    def problem(self) -> str | None:
        """What keeps the controller from its work, in one sentence; None if nothing does."""
        if not self.ready:
            return "the runtime has not told yet what runs"
        error = self._manager.store_error
        return None if error is None else str(error)

    async def history(self, text: str) -> list[Record]:
        """What happened to all containers that *text* may mean: a beginning of an id, or NAMESPACE/POD/CONTAINER.

        Raises:
            StoreError: if the disk fails.
        """
        return await self._manager.find_history(text)

    def choice_now(self, key: str) -> Choice | None:
        """What would be compared for a container that has a place if it were placed anew; from any thread.

        None where nothing would be.

        Whatever is wrong with a policy, it may raise.
        """
        node, policy = self.node, self._manager.policy
        if key not in node.grants or key not in node.containers or shortfall(node, policy, key):
            return None  # of the latter nothing was compared
        seen = complete(policy).shown(node, node.containers[key])
        candidates = candidates_of(policy, seen, node.containers[key]) if seen else None
        return Choice(Decided.NOW, candidates) if candidates else None

    def listen(self, heard: Heard | None) -> Node:
        """Let *heard* be told of every event and what came of it, in place of who was before; None ends that.

        Returns:
            The node before the first of the events that will be told: what is decided already may be told yet.
        """
        self._manager.heard = heard
        return self._manager.told

    def situation(self) -> "Situation":
        """The node and what is known beside it, for `report`; to be looked at from any thread."""
        from criproxy.views.status import Situation

        return Situation(
            node=self.node,
            policy=self.settings.policy_name,
            reserved=reserved_cpus(self._manager.policy, self.node.topology),
            reserved_later=self.modes.reserved_later,
            troubles=self._followups.troubles(),
            starting=frozenset(self._followups.starting),
            notices=tuple(self._notices()),
            refusals=self._manager.refusals(),
            lacking=partial(self._fit.lacking, self._manager.policy, self.node.topology),
            resizes=self._followups.refused.told(self.node),
            placer=self._manager.policy,
        )

    def waits_for(self, key: str) -> list[str]:
        """The names of those who still use CPUs that the container *key* was granted."""
        return [self.node.containers[other].title for other in self._followups.blockers(key)]

    def _notices(self) -> Iterator[Notice]:
        unasked = self._resync.error
        if not self.ready:
            why = f" ({unasked})" if unasked else ""
            yield Notice("resync", f"the runtime is being asked what runs; held calls wait for its answer{why}")
        elif unasked:
            yield Notice("runtime", f"the runtime cannot be asked what runs: {unasked}")
        if unread := self._watch.problem:
            yield Notice("machine", f"the machine has changed and cannot be read: {unread}")
        if error := self._manager.store_error:
            yield Notice("store", f"the state is out of date on disk, and nobody gets CPUs of their own: {error}")
        if self.config_problem:
            instead = f"; {self.config_instead}" if self.config_instead else ""
            yield Notice("config", f"the policy file is not the one in force: {self.config_problem}{instead}")
        yield from self._creates.devices.notices()
        if foreign := self._updates.foreign:
            yield Notice("competing-manager", foreign.sentence())
        containers = self.node.containers
        for unwritten in self._manager.left_out:
            text = f"the state of {unwritten.title} cannot be stored, and a restart of criproxy forgets it"
            yield Notice("not-stored", f"{text}: {unwritten.reason}")
        yield from self.failures.notices()
        if untold := {key: why for key, why in self._followups.kernel.untold.items() if _lives(containers.get(key))}:
            names = ", ".join(bounded_texts([containers[key].title for key in untold], 3))
            yield Notice("untold", f"the runtime does not tell how it is with {names}: {next(iter(untold.values()))}")
        if left := [containers[key].title for key in self._followups.kernel.left if key in containers]:
            yield Notice("left-running", f"{LEFT_RUNNING}: {', '.join(left)}")

    def measure(self) -> "Placing":
        """The controller in numbers, for metrics; slow to import, quick to ask."""
        from criproxy.control.measure import measure

        return measure(
            self._followups,
            reserved_cpus(self._manager.policy, self.node.topology),
            self._creates.devices,
            ready=self.ready,
            config_problem=self.config_problem is not None,
        )

    async def changed(self) -> None:
        """Return after the next change of the node."""
        await self._manager.changed()

    async def start(self) -> None:
        """Begin to find out what runs; returns at once, and calls that need the answer wait for it."""
        self.modes.start()

    def _begin(self) -> None:
        """Find out what runs, and notice from then on what happens beside the calls."""
        for key in self._followups.doubts.inherit(self._manager.node):
            self._inquiry.start_unknown(key)
        # What the store remembers is from before: CPUs may be gone.
        self._followups.submit(TopologyChanged(self._manager.node.topology))
        self._tasks.forever("resync", self._resync.run)
        self._runtime.on_unavailable = self._resync.soon
        self._watch.start()
        self._tasks.forever("look for cards", self._creates.devices.begin)

    def resync(self) -> None:
        """Something may have happened beside us, such as a restart of the runtime: ask as soon as possible."""
        if self.modes.active:
            self._resync.soon()

    def table(self) -> Table:
        """Which calls are held, watched and edited; another one whenever `Modes.changed` is told."""
        if not self.modes.active:
            return {}
        return self._edited if self.modes.edits else self._table

    def bypass(self, mode: BypassMode) -> None:
        """Do less, or everything again: before anybody is placed again, the runtime is asked what runs."""
        self._manager.bypassed = mode is BypassMode.AUTOMATIC
        if mode is BypassMode.ORDERED:
            self._passed_unseen = True
            self._followups.spans.begin()
        else:
            self._followups.spans.end()
        if mode is BypassMode.OFF and self.modes.active:
            self._resync.doubt(sizes=self._passed_unseen)
            self._passed_unseen = False

    async def on_error(self, call: Call, message: bytes | None, error: Exception) -> Verdict:
        """What becomes of a held call whose handler failed, or whose message cannot be read (None).

        No container starts on CPUs that another owns, whatever `OnError` says: StartContainer goes on only where
        nothing has to be done before it, else the kubelet repeats it; and whose create goes on is taken in before its
        start.
        """
        container = self._creates.container_of(call, message)
        verdict = await self._verdict(call, message, error)
        with self.failures.harmless("what became of a call"):
            self._tell_error(call, container, error, verdict)
        return verdict

    def _tell_error(self, call: Call, container: Container | None, error: Exception, verdict: Verdict) -> None:
        refused = isinstance(verdict, Refuse)
        # Of the former the notice about devices tells; of the latter it is the runtime that has not answered.
        if not isinstance(error, DeviceFault | NotReady):
            shares = "it goes on without a place of its own" if container else "it goes on"
            self._failing.call(call, error, "it was refused" if refused else shares)
        counters = self._manager.counters
        counters.fallbacks["refuse" if refused else self.settings.on_error.value] += 1
        if isinstance(verdict, Refuse):
            counters.refusals[verdict.code.name] += 1
        if container and refused:
            self._manager.note(container, Kind.REFUSED, for_kubelet(error))
        elif container:
            self._manager.note(container, Kind.PASSED, f"{for_kubelet(error)}; it goes on and is taken in afterwards")
        traceback = {} if isinstance(error, CriproxyError) else {"exc_info": error}
        self._log.error("call not handled", method=call.method, error=_sentence(error), refused=refused, **traceback)

    async def _verdict(self, call: Call, message: bytes | None, error: Exception) -> Verdict:
        way, method = self.settings.on_error, BY_PATH[call.method].name
        if way is OnError.REFUSE or isinstance(error, NotReady) or not self.ready:
            return _refusal(error)
        readable = message if not isinstance(error, UnreadableMessage) else None
        if method == "CreateContainer" and way is OnError.PASS:
            return await self._creates.unplaced(call, readable)
        if readable is None:
            return _refusal(error)
        if method == "CreateContainer":
            return await self._creates.shared(call, readable)
        if method == "StartContainer":
            goes_on = await self._starts.anyway(call, readable)
        else:
            goes_on = way is OnError.PASS and method == "UpdateContainerResources" and not has_cpuset(readable)
        return Proceed() if goes_on else _refusal(error)

    async def stop(self) -> None:
        """End background work, after what has been submitted is stored; the calls must have ended before."""
        await self._tasks.stop()
        await self._creates.devices.close()
        await self._manager.close()
        await self._runtime.close()


def _lives(container: Container | None) -> bool:
    return container is not None and container.state is not ContainerState.EXITED


def reserved_cpus(policy: Policy, topology: Topology) -> CpuSet:
    """CPUs of a machine that *policy* lets nobody own."""
    return options_of(policy).reserved(topology)


def _refusal(error: Exception) -> Refuse:
    """The status of a call that cannot go on because of *error*; the kubelet tries again."""
    return Refuse(error.code if isinstance(error, CriproxyError) else StatusCode.UNAVAILABLE, for_kubelet(error))


def _sentence(error: Exception) -> str:
    """What the log says."""
    return str(error) if isinstance(error, CriproxyError) else f"criproxy failed: {error!r}"
