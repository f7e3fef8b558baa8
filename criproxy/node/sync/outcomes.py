"""Queries the runtime for unknown outcomes: calls that ended without an answer, containers that may have exited.

Why not earlier: a list shows a container as it was when the list was requested. It does not count for a container that
has changed since, or that a call is about; and if a runtime reports a container as exited or not started while its
start may be in flight, that may be wrong a moment later.

Why not later: until its outcome is known, a container keeps its place, and the starts of others wait for its CPUs. So
criproxy asks at once, and again after short pauses; events of the container end a pause. There is one task for each
container, even if several calls about it end without an answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakValueDictionary

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError
from criproxy.cri.sizes import sizes_of_either
from criproxy.cri.stamp import never_to_start, stamped
from criproxy.model.node import Node
from criproxy.model.text.bounded import bounded_texts
from criproxy.model.workload import Container, ContainerState, Sizes
from criproxy.node.cgroups import AT_ONCE
from criproxy.node.context import Context
from criproxy.node.in_flight import StartEvent
from criproxy.node.reconcile.reconciler import Reconciler
from criproxy.node.sync.ends import ASK_S, QUESTION, Claim, Evidence, Inheritance, judge_each
from criproxy.node.sync.sizes_in_force import believe
from criproxy.node.sync.unasked import list_unasked, note_unasked
from criproxy.placement import events
from criproxy.process.tasks import wait_at_most

LONGEST_PAUSE_S = 60.0
"""The longest pause between two queries that the runtime does not answer, if no start waits for the outcome."""
Denial = Callable[[], object]
"""Applies the outcome that a call had no effect, once the runtime's answer can be believed."""


@dataclass(slots=True)
class Outcomes:
    """Converts answers of the runtime to events."""

    context: Context
    reconciler: Reconciler
    inheritance: Inheritance = field(default_factory=Inheritance)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _resizes: WeakValueDictionary[str, asyncio.Event] = field(default_factory=WeakValueDictionary)
    """By container: set when another resize of it was cut, for the tasks that query its size."""

    _told: set[str] = field(default_factory=set)
    """See `note_unasked`."""

    async def release_exited(self, sandbox_id: str = "") -> None:
        """List the containers of one sandbox, or all, and release the places of those that ended without a call."""
        before = self.context.state.node
        try:
            await self.judge(before, await self.context.runtime.list_containers(sandbox_id), sandbox_id)
            if not sandbox_id:
                await self.release_kept()
        except RuntimeCallError as error:
            self.context.log.warning("cannot ask which containers have exited", error=str(error))

    async def release_kept(self) -> None:
        """Release kept CPUs of pods whose sandboxes have ended without a call.

        Raises:
            RuntimeCallError: the runtime does not answer.
        """
        before = self.context.state.node
        if before.kept:
            await self.judge_sandboxes(before, await self.context.runtime.list_pod_sandbox())

    async def judge_sandboxes(self, before: Node, items: Iterable[api.PodSandbox]) -> None:
        """Release kept CPUs of pods whose sandboxes are not ready, or gone, by a list requested after *before*."""
        states, until_s = {item.id: item.state for item in items}, asyncio.get_running_loop().time() + ASK_S
        for key, pod in before.pods.items():
            concerned = pod.uid in before.kept or key in before.pods_with_exclusive
            if not concerned or pod.stopped or states.get(key) == api.SANDBOX_READY:
                continue
            if key in states or await self._is_sandbox_missing(key, until_s):
                self.inheritance.ended(self.context.state.node, key)
                await self.context.state.apply(events.PodNotReady(key))  # its containers may still run

    def may_be_there(self, key: str) -> bool:
        """Whether the sandbox *key* may exist although a list lacks it: a container has not ended, or it keeps CPUs."""
        node = self.context.state.node
        pod = node.pods.get(key)
        has_kept = pod is not None and not pod.stopped and pod.uid in node.kept
        return has_kept or self._may_run(key)

    async def _is_sandbox_missing(self, key: str, until_s: float) -> bool:
        """Whether a sandbox that a list lacks is gone: its containers have ended, and the runtime does not know it."""
        if self._may_run(key) or asyncio.get_running_loop().time() >= until_s:
            return False  # the end of a container decides
        try:
            async with asyncio.timeout_at(until_s):
                reply = await self.context.runtime.pod_sandbox_status(key)
        except (RuntimeCallError, TimeoutError) as error:
            return isinstance(error, RuntimeCallError) and error.not_found
        return reply.status.state == api.SANDBOX_NOTREADY

    def _may_run(self, key: str) -> bool:
        """Whether a container of the sandbox *key* has not ended."""
        return any(one.state is not ContainerState.EXITED for one in self.context.state.node.containers_of(key))

    async def judge(self, before: Node, items: Sequence[api.Container], sandbox_id: str = "") -> None:
        """Release the places of containers that have ended, by a list (of a sandbox) requested after *before*."""
        await list_unasked(self.context, items, self._told)
        listed = {item.id: item for item in items}
        asked = before.containers_of(sandbox_id) if sandbox_id else before.containers.values()
        claims = list[Claim]()
        for container in (each for each in asked if each.has_id):
            item = listed.get(container.key)
            if item is None:
                claims.append((container, Evidence.UNLISTED))
            elif translate.state(item) is ContainerState.EXITED and container.state is not ContainerState.EXITED:
                claims.append((container, Evidence.LISTED))
        self.context.in_flight.listed(listed)
        missed = {*self.context.in_flight.unlisted()}
        await judge_each(self.context, claims)
        new, containers = {*self.context.in_flight.unlisted()} - missed, self.context.state.node.containers
        if titles := [each.title for key, each in containers.items() if key in new]:
            text = "a list of the runtime lacks containers that have not ended: they keep their places"
            self.context.log.warning(text, containers=", ".join(bounded_texts(titles, 3)), count=len(titles))

    async def judge_created(self, before: Node, lost: Iterable[str]) -> None:
        """Release the places of *lost* containers: see `never_to_start`, from lists requested after *before*."""
        known = filter(None, map(before.containers.get, lost))
        created = [container for container in known if container.state is ContainerState.CREATED]
        await judge_each(self.context, [(container, Evidence.NEVER_TO_START) for container in created])

    def ask(self, key: str) -> None:
        """Resolve the outcome of the container *key* in the background; repeated calls are cheap."""
        if self.context.in_flight.ask(key):
            self.context.tasks.forever(f"ask for {key}", partial(self.resolve_outcome, key))

    def start_unknown(self, key: str) -> None:
        """Resolve the outcome of a start of *key* that may be in flight and will not be answered.

        Our updates of that container may be answered OK and lost meanwhile, so its cgroup is read afterwards.
        """
        until_s = asyncio.get_running_loop().time() + 2 * self.context.settings.unknown_pause_s
        self.context.in_flight.lose_start(self.context.state.node, key, until_s)
        self.ask(key)

    async def resolve_outcome(self, key: str) -> None:
        """Query the state of a container until the runtime answers, or the container is no longer known.

        An answer requested before the last event of the container does not count.
        """
        context, clock = self.context, asyncio.get_running_loop()
        question, pause_s, error_text = context.in_flight.question(key), 0.0, ""
        while True:
            await wait_at_most(pause_s, question.wait())
            if key not in context.state.node.containers:
                break
            pause_s = self._longer_s(key, pause_s)
            try:
                async with self._slots:
                    question.clear()
                    seen, reply = await context.cgroups.ask(key)
                    await note_unasked(context, key, seen, reply, self._told)
                    state = seen.state
            except Exception as error:  # noqa: BLE001 (any error means that there is no answer)
                if repr(error) != error_text:
                    self._report_unanswered(key, error)
                error_text = repr(error)
                continue
            if state is ContainerState.CREATED and context.in_flight.may_come_up(key, clock.time()):
                continue
            await self._apply_state(key, state)
            if not question.is_set():
                await self._end_start(key)
            if not question.is_set():
                break
        context.in_flight.answered(key)

    def _longer_s(self, key: str, pause_s: float) -> float:
        """Return the pause after one of *pause_s*: shorter if a start is unknown, because others may wait for it."""
        longest_s = self.context.settings.unknown_pause_s
        limit_s = longest_s if self.context.in_flight.is_start_unknown(key) else LONGEST_PAUSE_S
        return min(max(2 * pause_s, longest_s / 64), limit_s)

    def _report_unanswered(self, key: str, error: Exception) -> None:
        if isinstance(error, RuntimeCallError):
            self.context.log.warning("outcome still unknown", container=key, error=str(error))
        else:
            self.context.tasks.failed("background", f"ask for {key}", error)

    async def _apply_state(self, key: str, state: ContainerState | None) -> None:
        container, in_flight = self.context.state.node.containers.get(key), self.context.in_flight
        if container is None or (state is ContainerState.CREATED and in_flight.is_sent(key)):
            return  # it may run in a moment: the answer to its start will show that
        if state is ContainerState.CREATED and in_flight.is_stopped(key):
            state = ContainerState.EXITED
        await self.context.state.apply(_event(container, state))
        if state is ContainerState.RUNNING:
            if in_flight.report(key):
                self.context.tasks.spawn(f"report {key} if it is lost", self._report_lost(container))
            self.reconciler.enqueue([key], read=True)

    async def _report_lost(self, container: Container) -> None:
        """Log a container that runs although the runtime reports that it does not, unless it ends soon."""
        await asyncio.sleep(self.context.in_flight.lost_after_s)
        if self.context.in_flight.is_lost(container.key):
            text = "the runtime has lost track of a container whose processes are still running: it keeps its place"
            self.context.log.warning(text, container=container.title, id=container.key)

    async def _end_start(self, key: str) -> None:
        """End a start of unknown outcome, if there was one: read what *key* has, and judge it if it never ran."""
        if not self.context.in_flight.is_start_unknown(key):
            return
        self.context.in_flight.start(key, StartEvent.RESOLVE)
        before = self.context.state.node
        container = before.containers.get(key)
        if container and container.state is ContainerState.CREATED:  # `judge_created` could not judge it until now
            pod, runtime = container.pod, self.context.runtime
            with suppress(RuntimeCallError):  # the next resync finds it, too
                lists = await asyncio.gather(runtime.list_pod_sandbox(pod), runtime.list_containers(pod))
                await self.judge_created(before, never_to_start(*lists))
        self.reconciler.enqueue([key], read=True)

    async def resize_unknown(self, key: str, before: Sizes, total_milli: int = 0) -> None:
        """Query which size is in force after a resize without an answer: the new one, or that of *before*.

        *total_milli* is the CPU of its pod before it, if it changed as well.
        """
        again = self._resizes.setdefault(key, asyncio.Event())
        again.set()
        asked = self.context.state.node.containers.get(key)
        if asked is None or asked.sizes == before:
            return

        async def query() -> Denial | None:
            async with self.context.locks.of(key, QUESTION):
                in_force = await self._size_in_force(key, asked.sizes, before)
            return partial(believe, self.context, key, in_force, total_milli) if in_force else None

        self.context.counters.inquiries += 1
        await self._ask_twice(key, again, query)

    async def _size_in_force(self, key: str, asked: Sizes, before: Sizes) -> Sizes | None:
        """Return the size in force if it is not *asked*; None if it is, is not reported, or another resize came."""
        reply = (await self.context.cgroups.ask(key))[1]
        node = self.context.state.node
        known = node.containers.get(key)
        if reply is None or known is None or known.sizes != asked or not reply.status.resources.HasField("linux"):
            return None
        in_force, total = reply.status.resources.linux, node.total_of(known)
        sizes = sizes_of_either(in_force, known, before, node.topology.capacity_bytes, total)
        return None if sizes == asked else sizes

    def create_unknown(self, reservation: str, sandbox_id: str) -> None:
        """Keep the place of a create that ended without an answer until lists show its outcome."""
        if reservation in self.context.state.node.containers and self.context.in_flight.ask(reservation):
            self.context.counters.inquiries += 1
            self.context.state.submit(events.UnknownOutcome(reservation))
            self.context.tasks.forever(f"ask for {reservation}", partial(self._find, reservation, sandbox_id))

    async def _find(self, reservation: str, sandbox_id: str) -> None:
        async def query() -> Denial | None:
            found = stamped(await self.context.runtime.list_containers(sandbox_id), reservation)
            if found and reservation in self.context.state.node.containers:
                await self.created(reservation, found)
            return None if found else partial(self.context.state.submit, events.ContainerGone(reservation))

        await self._ask_twice(reservation, self.context.in_flight.question(reservation), query)
        self.context.in_flight.answered(reservation)

    async def _ask_twice(self, key: str, again: asyncio.Event, query: Callable[[], Awaitable[Denial | None]]) -> None:
        """Query until the runtime reports that the call had an effect, or twice in a row that it had none.

        A query during a repetition of the call, or before one, does not count: the runtime may be executing it again.

        Args:
            key: the container; if it is no longer known, the queries end.
            again: set whenever a repetition has ended.
            query: returns None if the call had an effect; an exception counts as no answer.
        """
        in_flight, is_denied, settings = self.context.in_flight, False, self.context.settings
        while key in self.context.state.node.containers:
            again.clear()
            await asyncio.sleep(min(settings.unknown_pause_s, settings.create_pause_s))
            try:
                denial = await query()
            except Exception as error:  # noqa: BLE001 (as above)
                self._report_unanswered(key, error)
                continue
            if denial is None or key not in self.context.state.node.containers:
                return
            is_alone = not again.is_set() and not in_flight.is_creating(key)
            if is_alone and is_denied:
                denial()
                return
            is_denied = is_alone

    async def created(self, reservation: str, found: api.Container) -> None:
        """Apply that the container of *reservation* was found in a list; it may have started unasked by then.

        Raises:
            RuntimeCallError: the runtime does not answer; it is asked again.
        """
        await self.context.state.apply(events.ContainerCreated(reservation, found.id))
        try:
            await list_unasked(self.context, [found], self._told)
        except RuntimeCallError:
            self.ask(found.id)
            raise
        await self._apply_state(found.id, translate.state(found))


_EVENTS: dict[ContainerState | None, type[events.ContainerGone | events.ContainerExited | events.ContainerStarted]] = {
    None: events.ContainerGone,
    ContainerState.EXITED: events.ContainerExited,
    ContainerState.RUNNING: events.ContainerStarted,
}


def _event(container: Container, state: ContainerState | None) -> events.Event:
    if state is ContainerState.CREATED:
        return events.ContainerCreated(container.reservation, container.key)
    return _EVENTS.get(state, events.UnknownOutcome)(container.key)
