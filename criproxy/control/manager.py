"""The current state of the node, and the only way to change it: one event after the other."""

import asyncio
import re
from collections import deque
from collections.abc import Mapping
from time import perf_counter

from criproxy.control.counters import Counters
from criproxy.control.keeper import Keeper, NodeStore
from criproxy.control.settings import Log, StoreLimits
from criproxy.control.telling import tell
from criproxy.engine.decision import Decision
from criproxy.engine.events import ContainerCreating, ContainerResized, Event
from criproxy.engine.fallback import Fallback
from criproxy.engine.step import step
from criproxy.errors import CriproxyError, StoreError
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState
from criproxy.policy.api import Policy


class PolicyFailed(Exception):
    """A policy raised what no policy may; the cause is what it raised. The node is as before."""


class Manager:
    """Steps the node: event in, decision out, stored before anybody acts on it.

    Args:
        node: the state to begin with, as the store has it.
        policy: asked by the engine.
        store: keeps each new state.
        log: told of each decision.
        limits: how patient to be with the store.
    """

    def __init__(
        self, node: Node, policy: Policy, store: NodeStore, log: Log, limits: StoreLimits | None = None
    ) -> None:
        self.node = node
        self.counters = Counters()
        self.bypassed = False
        """Newcomers share and nobody moves, without asking the policy or waiting for the disk."""
        self._policy = policy
        self._log = log
        self._keeper = Keeper(node, store, limits or StoreLimits(), self.counters, log)
        self._queue: deque[tuple[Event, asyncio.Future[Decision]]] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    @property
    def store_error(self) -> StoreError | None:
        """Why the last state could not be stored; None when the store is up to date."""
        return self._keeper.error

    def submit(self, event: Event) -> "asyncio.Future[Decision]":
        """Step the node by *event* after all events before it; what was submitted is done, whoever waits for it.

        The future raises:
            NotEnough: the policy has no place; the node is as before.
            PolicyFailed: the policy is at fault; the node is as before. Only for what can still be refused.
            StoreError: a reservation could not be stored; the node is as before.
        """
        done: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._queue.append((event, done))
        if self._pump is None:
            self._pump = asyncio.create_task(self._work(), name="manager")
        return done

    async def settled(self) -> None:
        """Return when everything submitted so far has been done."""
        if self._queue:
            await asyncio.wait([self._queue[-1][1]])

    async def close(self) -> None:
        """Return when everything has been done and, if that is possible, stored; nothing may come after."""
        await self.settled()
        await self._keeper.close()

    async def changed(self) -> None:
        """Return after the next change of the node."""
        await self._changed.wait()

    def resolve(self, container_id: str) -> str:
        """The key of the container with that id or, as the runtime allows, with an id that begins so."""
        return _resolve(self.node.containers, container_id)

    def resolve_pod(self, sandbox_id: str) -> str:
        """The key of the pod with that id or beginning of an id."""
        return _resolve(self.node.pods, sandbox_id)

    async def _work(self) -> None:
        try:
            while self._queue:
                event, done = self._queue[0]
                try:
                    decision = await self._apply(event)
                except Exception as error:  # noqa: BLE001 (it is for whoever submitted the event)
                    _end(done, error)
                else:
                    _end(done, decision)
                self._queue.popleft()
        finally:
            self._pump = None

    async def _apply(self, event: Event) -> Decision:
        begun_s = perf_counter()
        decision = self._step(event)
        took_s = perf_counter() - begun_s
        before = self.node
        if decision.node is not before:
            await self._keeper.save(decision, needed=_is_reservation(event) and not self.bypassed)
            self.node = decision.node
            self._changed.set()
            self._changed = asyncio.Event()
            self.counters.decisions[_kind(type(event).__name__)] += 1
        if _can_be_refused(event):
            self.counters.decision_times.add(took_s)
        tell(self._log, event, before, decision, took_s)
        return decision

    def _step(self, event: Event) -> Decision:
        """What *event* leads to; what has happened already counts, whatever the policy does."""
        if self.bypassed:
            return step(self.node, event, Fallback())
        try:
            return step(self.node, event, self._policy)
        except CriproxyError:
            raise
        except Exception as error:
            self.counters.policy_failures += 1
            if _can_be_refused(event):
                raise PolicyFailed(f"the policy failed: {error!r}") from error
            self._log.error("policy failed; nobody moves", event_kind=type(event).__name__, exc_info=error)
            return step(self.node, event, Fallback())


def _can_be_refused(event: Event) -> bool:
    """Whether the kubelet waits for the answer; everything else tells what has happened."""
    return _is_reservation(event) or isinstance(event, ContainerResized)


def _is_reservation(event: Event) -> bool:
    """Whether nobody may act on *event* before it is on disk: a create that the runtime has not heard of."""
    return isinstance(event, ContainerCreating) and event.container.state is ContainerState.CREATING


def _kind(name: str) -> str:
    """``ContainerCreating`` → ``container_creating``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _end(done: "asyncio.Future[Decision]", result: Decision | Exception) -> None:
    if done.cancelled():
        return
    if isinstance(result, Exception):
        done.set_exception(result)
    else:
        done.set_result(result)


def _resolve(known: Mapping[str, object], given: str) -> str:
    if given in known or not given:
        return given
    matches = [key for key in known if key.startswith(given)]
    return matches[0] if len(matches) == 1 else given
