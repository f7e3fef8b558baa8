"""The current state of the node, and the only way to change it: one event after the other."""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from criproxy.control.settings import Log
from criproxy.engine.decision import Decision
from criproxy.engine.events import ContainerCreating, Event
from criproxy.engine.step import step
from criproxy.errors import StoreError
from criproxy.model.node import Node
from criproxy.model.topology import Topology
from criproxy.model.workload import ContainerState
from criproxy.policy.api import Policy


class NodeStore(Protocol):
    """Where a node is kept over restarts."""

    def load(self, topology: Topology) -> Node:
        """The node as it was saved last."""
        ...

    async def save(self, before: Node, after: Node, decision: Decision) -> None:
        """Write the rows that differ, in one transaction; raises StoreError."""
        ...


class Manager:
    """Steps the node: event in, decision out, stored before anybody acts on it.

    Args:
        node: the state to begin with, as the store has it.
        policy: asked by the engine.
        store: keeps each new state.
        log: told of each decision.
    """

    def __init__(self, node: Node, policy: Policy, store: NodeStore, log: Log) -> None:
        self.node = node
        self.store_error: StoreError | None = None
        """Why the last state could not be stored; None when the store is up to date."""
        self._policy = policy
        self._store = store
        self._log = log
        self._stored = node
        self._queue: deque[tuple[Event, asyncio.Future[Decision]]] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def submit(self, event: Event) -> "asyncio.Future[Decision]":
        """Step the node by *event* after all events before it; what was submitted is done, whoever waits for it.

        The future raises:
            NotEnough: the policy has no place; the node is as before.
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
        decision = step(self.node, event, self._policy)
        if decision.node is not self.node:
            await self._save(decision, event)
            self.node = decision.node
            self._changed.set()
            self._changed = asyncio.Event()
        if decision.reasons:
            self._log.info("decided", container=decision.key, reasons=list(decision.reasons))
        return decision

    async def _save(self, decision: Decision, event: Event) -> None:
        """Store what is new since the last time that it could be stored.

        A reservation must be on disk before the runtime hears of it. All other events, adoptions among them, tell what
        has happened already: they count even while the disk fails, and go to it with the next state.
        """
        try:
            await self._store.save(self._stored, decision.node, decision)
        except StoreError as error:
            self.store_error = error
            self._log.error("state not stored", error=str(error))
            if isinstance(event, ContainerCreating) and event.container.state is ContainerState.CREATING:
                raise
        else:
            self._stored, self.store_error = decision.node, None


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
