"""StartContainer, and the barrier: a start waits until no other container can be running on the CPUs that it gets.

Why not earlier: a container that must give up CPUs runs on them until its cgroup shows otherwise, even if the runtime
has answered OK; and an update that grants CPUs counts from before it is sent. So the start waits for both, takes the
container's lock, under which criproxy sends no other update, brings the container into its place, and checks for
blockers again.

Why not later: the container is created, and the kubelet waits. So the start does not wait for its own container to get
more CPUs, for memory nodes, or for containers without CPUs in common; it continues with the node's next change after
which no blocker is left; and after ``barrier_timeout_s``, the limit of all its waits together, the kubelet gets
UNAVAILABLE with the blockers' names, and repeats the start.

Which containers block it, and why, is in `reconcile.excess_cpus`. Another reason to wait belongs in `Starts.hold` and,
for a start that may continue although `hold` failed, in `Starts.may_skip_barrier`.
"""

import asyncio
from dataclasses import dataclass
from time import monotonic

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError, if_reported
from criproxy.errors import StatusCode
from criproxy.model.attributes import in_place
from criproxy.model.cpuset import numbered
from criproxy.model.record import Kind
from criproxy.model.workload import ContainerState, Sizes
from criproxy.node.context import Context
from criproxy.node.in_flight import StartEvent
from criproxy.node.locks import Busy
from criproxy.node.reconcile.controls_client import ControlsClient
from criproxy.node.reconcile.excess_cpus import is_blocking, owners_of
from criproxy.node.reconcile.reconciler import Reconciler
from criproxy.node.sync.outcomes import Outcomes
from criproxy.node.sync.resync import Resync
from criproxy.placement.decision import Decision
from criproxy.placement.events import ContainerStarted, UnknownOutcome
from criproxy.placement.rules.release import pending
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed, Refuse, Verdict

_START = "the kubelet's StartContainer"
_NAMED = 3
"""How many blockers the history and the status of a refused start name; the length of a status is limited."""


class Blocked(Exception):
    """Others did not give up CPUs, or the lock of the container, in time; the text names them."""


@dataclass(frozen=True, slots=True)
class Locked:
    """A held call that holds the lock of a container until its end."""

    key: str
    before: Sizes | None = None
    """For a resize: the sizes before it, which count again if the runtime refuses."""
    total_milli: int = 0
    """The CPU of the pod before it, if it changes this as well; otherwise 0."""


@dataclass(slots=True)
class Starts:
    """The handlers of StartContainer."""

    context: Context
    reconciler: Reconciler
    outcomes: Outcomes
    resync: Resync
    controls: ControlsClient

    async def hold(self, call: Call, message: bytes) -> Verdict:
        """Let the start through once its CPUs are free and its own cpuset is up to date."""
        context, key = self.context, self._key(message)
        try:
            if key not in context.state.node.containers:
                await self.resync.adopt_before_start(key)
                key = self._key(message)
            until_s = asyncio.get_running_loop().time() + context.settings.barrier_timeout_s
            await self.controls.before_start(key)
            while key in context.state.node.grants:
                await self._wait_for_cpus(key, until_s)
                if await self._enter(key, until_s):
                    call.context = Locked(key)
                    return Proceed()
            if given_up := await self._given_up(key):  # it may have happened during the wait
                return Refuse(StatusCode.FAILED_PRECONDITION, given_up)
        except Blocked as error:
            return self._refused(key, error, str(error))
        except RuntimeCallError as error:
            why = "the runtime cannot be reached" if error.is_away else "a call to the runtime about it has failed"
            title = context.state.title_of(key)
            said = f"cannot prepare container {title} for its start: {why}; criproxy's log has the cause"
            return self._refused(key, error, said)
        return Proceed()

    def _refused(self, key: str, error: Exception, said: str) -> Refuse:
        """Refuse the start of *key* because of *error*, with the message *said* for the kubelet."""
        self.context.log.warning("start refused", container=key, error=str(error))
        self.context.state.note(key, Kind.WAITED, f"its start was refused: {said}")
        return Refuse(StatusCode.UNAVAILABLE, said)

    async def _given_up(self, key: str) -> str:
        """Return why *key* may not start, if it lost its place when it was stopped or replaced by another attempt.

        No kubelet starts such a container. If the runtime knows that it has ended, it refuses the start itself.
        """
        container = self.context.state.node.containers.get(key)
        if container is None or container.state is not ContainerState.EXITED:
            return ""
        asked = await self.context.cgroups.reported(key)
        if asked is None or asked[0].state is not ContainerState.CREATED:
            return ""
        return f"container {container.title} was abandoned before it ran, and no longer has a place: create it again"

    async def may_skip_barrier(self, call: Call, message: bytes) -> bool:
        """Take the lock if the start may continue although `hold` failed, because nothing has to happen before it."""
        context = self.context
        key = self._key(message)
        grant, applied = context.state.node.grants.get(key), context.state.node.applied.get(key)
        if grant is None or not in_place(grant, applied) or context.locks.busy(key) or self.reconciler.blockers(key):
            return False
        await context.locks.enter(key, _START)  # returns at once: the lock is free
        call.context = Locked(key)  # from here on, the call's end releases the lock even after a failure
        context.in_flight.start(key, StartEvent.SEND)
        return True

    async def _wait_for_cpus(self, key: str, until_s: float) -> None:
        """Wait until no other container can be running on CPUs that it must give up and *key* gets.

        Raises:
            Blocked: there are blockers left at *until_s*, on the event loop's clock.
        """
        if not (blockers := self.reconciler.blockers(key)):
            return
        begun_s, waited_for, enqueued = monotonic(), self._named(blockers), set[str]()
        try:
            async with asyncio.timeout_at(until_s):
                while blockers:
                    for blocker in set(blockers) - enqueued:
                        self.reconciler.enqueue([blocker], read=self.context.in_flight.is_unread(blocker))
                    enqueued.update(blockers)
                    await self._wait_for(blockers[-1], key)
                    blockers = self.reconciler.blockers(key)
        except TimeoutError:
            if key in self.context.state.node.grants:  # otherwise it was removed at that moment
                raise Blocked(self._refusal(key)) from None
        waited_ms = round((monotonic() - begun_s) * 1000, 1)
        text = f"its start waited {waited_ms:g} ms until {waited_for} had left its CPUs"
        self.context.state.note(key, Kind.WAITED, text, waited_ms=waited_ms)

    async def _wait_for(self, other: str, key: str) -> None:
        """Wait until *other* no longer blocks *key*: until then the others, maybe many, need not be checked."""
        while is_blocking(self.context.state.node, key, self.reconciler.excess(), other):
            await self.context.state.changed()

    def _refusal(self, key: str) -> str:
        node, named = self.context.state.node, self._named(self.reconciler.blockers(key), with_trouble=True)
        return (
            f"container {node.containers[key].title} cannot start on {numbered('CPU', node.grants[key].cpus)} yet: "
            f"after {self.context.settings.barrier_timeout_s:g} s some of them are still used by {named}"
        )

    def _named(self, blockers: list[str], *, with_trouble: bool = False) -> str:
        containers, rest = self.context.state.node.containers, len(blockers) - _NAMED
        names = [containers[key].title for key in blockers[:_NAMED]]
        if with_trouble:
            troubles = (self.reconciler.trouble(key).error or pending(containers[key]) for key in blockers)
            names = [f"{name} ({trouble})" for name, trouble in zip(names, troubles, strict=False)]
        return ", ".join(names) + (f" and {rest} others" if rest > 0 else "")

    async def _enter(self, key: str, until_s: float) -> bool:
        """Take the lock, and bring the container into its place; False (without the lock) if it cannot start yet.

        Raises:
            Blocked: the lock is not free by *until_s*, on the event loop's clock.
        """
        context, is_sent = self.context, False
        try:
            await context.locks.enter(key, _START, until_s)
        except Busy as error:
            if (container := context.state.node.containers.get(key)) is None:  # it was removed meanwhile
                return False
            after = f"after {context.settings.barrier_timeout_s:g} s {error} is still in progress in the runtime"
            raise Blocked(f"container {container.title} cannot start yet: {after}") from None
        try:
            await self.reconciler.bring_into_place(key)
            if not context.settings.moves_created and key in context.state.node.grants:
                if context.in_flight.is_unread(key):  # as all are after a start of criproxy, until they are looked at
                    await if_reported(self.reconciler.read_cgroup(key))
                self._check_cpus(key)
            if key in context.state.node.grants and not self.reconciler.blockers(key):
                context.in_flight.start(key, StartEvent.SEND)
                is_sent = True
        finally:
            if not is_sent:
                context.locks.leave(key)
        return is_sent

    def _check_cpus(self, key: str) -> None:
        """Let *key*, which cannot be moved before it runs, start where it is if nobody runs who has these CPUs.

        Whoever has them waits for *key* then, which moves as soon as it runs.

        Raises:
            Blocked: somebody does.
        """
        node = self.context.state.node
        if owners := owners_of(node, key, self.context.in_flight):
            text = "was created before CPUs were given to others, and cannot start on them: they are used by"
            raise Blocked(f"container {node.containers[key].title} {text} {self._named(owners)}")

    def done(self, call: Call, outcome: Outcome) -> None:
        """Apply the outcome of the start, and release the lock when that is decided."""
        if isinstance(call.context, Locked):
            self._ended(call.context.key, outcome.kind)
        if call.request is None:
            return
        key = self._key(call.request)
        self.resync.touch(key)  # lists from before the start are outdated for this container
        known = self.context.state.node.containers.get(key)
        if outcome.kind is OutcomeKind.OK and known and known.state is ContainerState.EXITED:
            self.resync.soon()  # a later attempt has replaced it meanwhile, but it runs
        had_no_place = not isinstance(call.context, Locked)  # it had no place when the start began
        may_run = outcome.kind in (OutcomeKind.OK, OutcomeKind.UNKNOWN)
        if had_no_place and may_run and key in self.context.state.node.containers:  # it may have been adopted since
            self.outcomes.ask(key)

    def _ended(self, key: str, outcome: OutcomeKind) -> None:
        """Apply *outcome*, and release the lock afterwards even if that fails."""
        decided: asyncio.Future[Decision] | None = None
        try:
            decided = self._apply(key, outcome)
        finally:
            if decided:
                decided.add_done_callback(lambda _: self._leave(key))
            else:
                self._leave(key)

    def _apply(self, key: str, outcome: OutcomeKind) -> "asyncio.Future[Decision] | None":
        """Submit the outcome of the start; None if it needs no decision."""
        state, in_flight = self.context.state, self.context.in_flight
        if outcome is OutcomeKind.OK:
            started = state.submit(ContainerStarted(key))
            started.add_done_callback(lambda _: in_flight.start(key, StartEvent.ANSWER))
            return started
        if outcome is OutcomeKind.UNKNOWN:
            self.context.counters.inquiries += 1
            self.outcomes.start_unknown(key)
            return state.submit(UnknownOutcome(key))
        in_flight.start(key, StartEvent.ANSWER)
        if outcome is OutcomeKind.FAILED:  # it has probably exited: ask the runtime
            self.outcomes.ask(key)
        return None

    def _leave(self, key: str) -> None:
        self.context.locks.leave(key)  # first: a failure below must not leave the lock held
        self.context.state.notify()
        self.reconciler.enqueue([key], read=True)

    def _key(self, message: bytes) -> str:
        return self.context.state.resolve(translate.read(api.StartContainerRequest, message).container_id)
