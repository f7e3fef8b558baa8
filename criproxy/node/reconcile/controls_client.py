"""Tells the controls service what to apply: all of it after a connection, then what changes; and what it answers.

Nothing waits for the service but the start of a container whose class it applies: for a moment, and only if it has
answered its last call in time. Without classes, there is no connection.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError
from criproxy.model.controls import ControlsAnswer
from criproxy.model.record import Kind
from criproxy.model.text.plain import from_plain, to_plain
from criproxy.node.context import Context
from criproxy.node.reconcile.controls_map import ControlsMap
from criproxy.process.control_client import ControlClient, DaemonRefuses, NoDaemon
from criproxy.process.tasks import Backoff, OnDemand

START_WAIT_S = 0.25
"""How long a start waits for its classes."""
SILENCE_S = 5.0
"""After so long without an answer, the service counts as silent."""
POLL_S, PENDING_POLL_S = 20.0, 0.5
"""How often it is asked how it is; the second while it still applies something."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 30.0
MARK = "controls"
"""The name of `ControlsClient.mark`, in the state directory."""


class ServiceState(Enum):
    """How the service answers."""

    UNUSED = "unused"
    """It has nothing of ours, and is not asked."""
    UNKNOWN = "unknown"
    """It was not asked yet."""
    ANSWERS = "answers"
    ABSENT = "absent"
    SILENT = "silent"
    """It does not answer in time."""
    REFUSES = "refuses"
    """It answers with an error; for example, it is of another version."""


@dataclass(slots=True)
class ControlsClient:
    """The connection to the service, and what it has said."""

    context: Context
    map: ControlsMap
    mark: Path
    """The file that says that the service may have something of ours."""
    socket: str = ""
    """Of the service; empty: it is never asked."""
    poll_s: float = POLL_S
    state: ServiceState = ServiceState.UNUSED
    problem: str = ""
    """Why it does not apply what it should, in a sentence; empty if it answers."""
    answer: ControlsAnswer = field(default_factory=ControlsAnswer)
    """Its last one."""
    version: str = ""
    """Of the service; empty if unknown."""
    generation: int = 0
    """Of what was sent last."""
    late_starts: int = 0
    """Containers that started before their classes were set."""
    _may_have: bool = False
    """Whether it may have something of ours."""
    _is_whole: bool = False
    """Whether it has all, so that changes suffice."""
    _is_prompt: bool = False
    """Whether it has answered its last call in time, and had applied everything."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, whenever there is an answer, or nobody is to wait for one any more."""
    _pauses: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S))
    _worker: OnDemand = field(init=False)
    _finder: OnDemand = field(init=False)

    def __post_init__(self) -> None:
        self._worker = OnDemand(self.context.tasks, "tell the controls service", self._follow)
        self._finder = OnDemand(self.context.tasks, "find cgroups of containers with classes", self._find)

    @property
    def is_behind(self) -> bool:
        """Whether the service does not have all that is desired now, or has not confirmed it."""
        return not self._is_whole or self.map.has_changes

    async def begin(self, known: Callable[[], Awaitable[None]]) -> None:
        """Find out whether an earlier run has left something with the service; *known* waits for what runs."""
        self._may_have = await asyncio.to_thread(self.mark.exists)
        await known()
        self.look()

    def look(self) -> None:
        """Look at the node after a change of it."""
        due = self.map.update()
        if due:
            self._wake.set()
        if self.map.unplaced and not self._finder.busy:
            self._finder.now()
        may_need_it = self.map.parts is not None or self._may_have
        if may_need_it and self.socket and not self._worker.busy and self.map.is_settled:
            self._worker.now()

    async def before_start(self, key: str) -> None:
        """Wait until the classes of a container are set, for a moment at most; note in its history if they are not."""
        self.look()  # it may have been created a moment ago
        if not self._is_due(key):
            return
        try:
            async with asyncio.timeout(min(START_WAIT_S, self.context.settings.barrier_timeout_s)):
                while self._is_prompt and self._is_due(key):
                    await self._answered.wait()
        except TimeoutError:
            self._is_prompt = False
            self._tell_answered()  # others that wait have no reason to any more
        if self._is_due(key):
            self._note_late(key)

    def _is_due(self, key: str) -> bool:
        """Whether the service is not known to wait for the first process of a container with such a class."""
        return self.map.is_due(key) or (key in self.map.containers and not self._is_whole)

    def _note_late(self, key: str) -> None:
        grant = self.context.state.node.grants.get(key)
        if grant is None:
            return
        self.late_starts += 1
        names = ", ".join(dict.fromkeys(name for _, name in grant.controls.classes))
        why = self.problem or "criproxy controls has not answered in time"
        text = f"it started before its class was set ({names}): {why}; it is set as soon as possible"
        self.context.state.note(key, Kind.WAITED, text)

    # ---------------------------------------------------------------- the connection

    async def _follow(self) -> None:
        """Tell the service what is desired until it has nothing of ours any more."""
        client = ControlClient(self.socket, SILENCE_S)
        self._is_whole, self._may_have = False, True
        self.context.tasks.spawn("mark that controls are in use", asyncio.to_thread(self._set_mark, there=True))
        try:
            while self._is_needed:
                try:
                    await self._tell(client)
                except (NoDaemon, DaemonRefuses, ValueError) as error:
                    self._failed(error)
                    await asyncio.sleep(self._pauses.pause_s())
                else:
                    self._pauses.reset()
                    await self._until_needed(client)
        finally:
            client.close()
        self._may_have, self.state = False, ServiceState.UNUSED
        await asyncio.to_thread(self._set_mark, there=False)
        if self.map.parts is not None:  # classes came back while the disk was slow
            self._worker.soon()

    @property
    def _is_needed(self) -> bool:
        is_done = not self.answer.pending and not self.answer.troubles
        has_all = self._is_whole and is_done and not self.map.update()
        return self.map.parts is not None or not has_all

    async def _until_needed(self, client: ControlClient) -> None:
        """Wait for a change, the next look, or the end of the service: it has to hear of all before the next start."""
        waits = [asyncio.ensure_future(self._wake.wait()), asyncio.ensure_future(client.lost())]
        try:
            pause_s = PENDING_POLL_S if self.answer.pending else self.poll_s
            await asyncio.wait(waits, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _tell(self, client: ControlClient) -> None:
        """Send what the service does not have, or ask how it is.

        Raises:
            NoDaemon, DaemonRefuses: it does not take it.
            ValueError: its answer is of another version.
        """
        self._wake.clear()
        self.map.update()
        if not self._is_whole:
            await self._finder.ended()  # else it would put back what containers have whose cgroup is not known yet
            self.generation += 1
            desired = await asyncio.to_thread(to_plain, self.map.take_all())
            if not await self._send(client, "apply", {"generation": self.generation, "desired": desired}):
                raise NoDaemon(f"criproxy controls on {self.socket} has not taken what it was sent")
            return
        if changes := self.map.take_changes():
            after, self.generation = self.generation, self.generation + 1
            await self._send(client, "apply", {"generation": self.generation, "after": after, **changes})
        else:
            await self._send(client, "status", {})

    async def _send(self, client: ControlClient, command: str, arguments: dict[str, Any]) -> bool:
        """Return whether the service has all that was sent."""
        said = await client.ask(command, arguments)
        self.answer = answer = from_plain(ControlsAnswer, said)
        self.version = str(said.get("version") or self.version)
        self._is_whole = answer.generation == self.generation and not answer.needs_whole
        if not self._is_whole:
            self._wake.set()  # it has restarted: it gets all at once
        elif not answer.pending:
            self.map.confirm()
        self.state, self.problem = ServiceState.ANSWERS, ""
        self._is_prompt = self._is_whole and not answer.pending
        self._tell_answered()
        return self._is_whole

    def _failed(self, error: Exception) -> None:
        self._is_whole = self._is_prompt = False
        self.state, self.problem = self._understood(error)
        self._tell_answered()

    def _understood(self, error: Exception) -> tuple[ServiceState, str]:
        unit = "criproxy-controls.service"
        if isinstance(error, NoDaemon) and isinstance(error.__cause__, TimeoutError):
            text = f"criproxy controls on {self.socket} has not answered for {SILENCE_S:g} s: restart {unit}"
            return ServiceState.SILENT, text
        if isinstance(error, NoDaemon) and isinstance(error.__cause__, OSError):
            why = error.__cause__.strerror or str(error.__cause__)
            return ServiceState.ABSENT, f"nobody answers on {self.socket} ({why}): restart {unit}"
        if isinstance(error, DaemonRefuses) and error.unknown:
            text = f"criproxy controls is of another version, which does not know a command: restart {unit} ({error})"
            return ServiceState.REFUSES, text
        return ServiceState.REFUSES, f"criproxy controls refuses what the daemon sends, restart {unit}: {error}"

    def _tell_answered(self) -> None:
        self._answered.set()
        self._answered = asyncio.Event()

    def _set_mark(self, *, there: bool) -> None:
        with self.context.failures.harmless("the mark of the controls service"):
            if there:
                self.mark.touch(mode=0o600)
            else:
                self.mark.unlink(missing_ok=True)

    # ---------------------------------------------------------------- containers

    async def _find(self) -> None:
        """Ask the runtime for the cgroups of containers, where they do not follow from those of their pods."""
        for key in (*self.map.unplaced,):
            await asyncio.sleep(0)  # there may be a thousand
            if cgroup := self.map.known_cgroup(key):
                self.map.set_cgroup(key, cgroup)
                continue
            with suppress(RuntimeCallError):  # it is asked again after the next change
                reply = await self.context.runtime.container_status(key, verbose=True)
                self.map.set_cgroup(key, translate.cgroup_in(reply.info).strip("/"))
        if self.map.update():
            self._wake.set()
        self._tell_answered()
