"""The life of a plugin: connect to the runtime, register, and begin again when the connection ends."""

import asyncio
import stat
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import time

from criproxy.errors import CriproxyError, reason_of
from criproxy.model.text.notices import timestamp
from criproxy.nri import api_pb2 as nri
from criproxy.nri.connection import CallFailed, Connection, Ended
from criproxy.nri.front import NriFront
from criproxy.process.log import structlog
from criproxy.process.tasks import Backoff

log = structlog.get_logger("criproxy.nri")

NAME, INDEX = "criproxy", "90"
"""Plugins are asked in the order of the index: after this one, few change what it has decided."""
OFF = (
    "if NRI is off, 'criproxy install --nri' switches it on, or you do: for containerd, disable = false in "
    '[plugins."io.containerd.nri.v1.nri"]; for CRI-O, enable_nri = true in [crio.nri]; and a restart of the runtime'
)
"""What to do if there is no socket."""
FIRST_PROBLEM = "criproxy has not connected yet"
BUSY = (
    "the runtime asks criproxy, and begins other calls, as soon as those under way have ended, such as the stop of a "
    "container with its grace period: until then no container starts; if that never happens, restart the runtime"
)
"""Why the runtime does not ask yet."""
UNPLACED = "the runtime does not ask criproxy about containers, which start without their place"
REGISTER_S = 5.0
"""How long the runtime may take to register a plugin."""
SAID_S = 5.0
"""After this time, it is said that the runtime has not told yet what runs."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""Between two connections."""
MANY_ENDED, WITHIN_S = 3, 60.0
"""So many connections that end within this time are told of for as long, since there may be one at each look."""
_UNSTEADY = (
    "the runtime has ended {} connections within a minute, most recently at {}: {}. Containers that are created "
    "between two of them start without their place. It ends one if an answer takes longer than its request timeout, "
    "and if the kubelet gives up a call"
)
_EVENTS = range(nri.RUN_POD_SANDBOX, nri.REMOVE_CONTAINER + 1)
"""All that there were before 0.10: what a sandbox or a container goes through. Each costs the runtime a round trip, and
each is needed. After a create, the container exists, and the updates in the answer to it are applied; until a start or
an update is over, its container is locked. When a sandbox comes, the kubelet is asked about its cards, for which its
creates need not wait then. Ends are seen late by anything else: containerd 1.7 has no other events that a second
listener may read."""
_SINCE_0_10 = (nri.UPDATE_POD_SANDBOX,)
"""Older versions refuse a plugin that asks for events which they do not know."""


@dataclass(slots=True, repr=False)
class Plugin:
    """Connects to the runtime's NRI socket, for ever.

    Args:
        path: of the socket.
        front: answers the events.
    """

    path: str
    front: NriFront
    problem: str = FIRST_PROBLEM
    """Why the runtime does not ask criproxy, in a sentence; empty if it does."""
    runtime: tuple[str, str] = ("", "")
    """Its name and version."""
    request_timeout_s: float = 0.0
    """How long the runtime waits for an answer; 0: it does not say."""
    connections: int = 0
    """How many there were."""
    _failed: Callable[[str, Exception], None] = lambda method, error: None
    """Is called with failures of criproxy, and the name of the method."""
    _connection: Connection | None = None
    _ended: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=MANY_ENDED))
    """When the last connections ended, in seconds since the epoch, and why."""
    _accepted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def unsteady(self) -> str:
        """That connections have ended again and again until recently, in a sentence; empty if that is not so."""
        if len(self._ended) < MANY_ENDED or time() - self._ended[0][0] > WITHIN_S:
            return ""
        return _UNSTEADY.format(MANY_ENDED, timestamp(self._ended[-1][0]), self._ended[-1][1])

    @property
    def notice(self) -> str:
        """The problem with what it means for containers; empty without one."""
        return self.problem if self.problem in ("", BUSY) else f"{UNPLACED}: {self.problem}"

    def to_json(self) -> dict[str, str]:
        """Return the part ``plugin`` of `status`."""
        return {"socket": self.path, "problem": self.problem}

    async def run(
        self,
        known: Callable[[], Awaitable[None]],
        blockers: Callable[[str], Sequence[str]],
        failed: Callable[[str, str, Exception], None],
    ) -> None:
        """Connect, and again whenever the connection ends; not before it is *known* what runs.

        The runtime gives all plugins two seconds to take over what runs. So that is found out before, from lists.

        Args:
            known: returns when it is.
            blockers: as `NriFront.blockers`.
            failed: is told of failures of criproxy: their kind, the method and the error.
        """
        self.front.blockers, self._failed = blockers, partial(failed, "call")
        self.front.disconnect = self._disconnect
        pauses = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            await known()
            try:
                await self._connect(pauses)
            except (OSError, CriproxyError) as error:
                said = f"{self.path}: {self._why(error)}"
                if isinstance(error, OSError):
                    pauses.reset()  # when the runtime is back, nothing may be created before it asks criproxy
                if said != self.problem:
                    log.warning("the runtime does not ask criproxy", socket=self.path, error=said)
                self.problem = said
            await asyncio.sleep(pauses.pause_s())

    def _why(self, error: OSError | CriproxyError) -> str:
        if isinstance(error, CallFailed):
            return f"the runtime refuses to register criproxy: {error}"
        if not isinstance(error, OSError):
            return str(error)
        with suppress(OSError):  # there is none, or nobody may look
            if not stat.S_ISSOCK(Path(self.path).stat().st_mode):
                return "it is not a socket"
        is_off = isinstance(error, FileNotFoundError | ConnectionRefusedError)
        return f"{reason_of(error)}; {OFF}" if is_off else reason_of(error)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def _connect(self, pauses: Backoff) -> None:
        reader, writer = await asyncio.open_unix_connection(self.path)
        self._accepted.clear()
        self.connections += 1
        connection = Connection(reader, writer, self._answer, self._failed)
        self.front.connected(self.connections)
        reading = asyncio.create_task(connection.run())
        try:
            await _register(connection)
            await self._synchronized(reading)
            self._connection, self.problem = connection, ""
            name, version = self.runtime
            log.info("connected to the runtime", socket=self.path, runtime=name, version=version)
            pauses.reset()
            self.front.on_runtime_lost()  # what was made since the last look is placed now
            try:
                await reading
            except Ended as error:
                self._ended.append((time(), str(error)))
                raise
        finally:
            self._connection = None
            connection.close()
            reading.cancel()
            with suppress(asyncio.CancelledError, CriproxyError):
                await reading
            self.front.lost()

    async def _synchronized(self, reading: asyncio.Task[None]) -> None:
        """Wait until the runtime has told what runs, however long that takes; *reading* ends with the connection.

        containerd (from 1.7.26 and 2.0.3 on) does that when all calls under way have ended, such as stops with their
        grace periods. It begins no others meanwhile, and does so first if a plugin has given up: they would miss it.
        """
        accepted = asyncio.create_task(self._accepted.wait())
        either = {accepted, reading}
        try:
            if not (await asyncio.wait(either, timeout=SAID_S, return_when=asyncio.FIRST_COMPLETED))[0]:
                self.problem = BUSY
                log.warning("the runtime does not ask criproxy", socket=self.path, error=BUSY)
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not accepted.done():
                await reading
        finally:
            accepted.cancel()

    async def _answer(self, method: str, request: bytes) -> bytes:
        match method:
            case "Configure":
                return self._configure(nri.ConfigureRequest.FromString(request))
            case "Synchronize":
                return self._synchronize(nri.SynchronizeRequest.FromString(request))
            case "Shutdown":
                log.info("the runtime shuts its plugins down")
                return b""
        return await self.front.answer(method, request)

    def _configure(self, request: nri.ConfigureRequest) -> bytes:
        self.runtime = request.runtime_name, request.runtime_version
        self.request_timeout_s = request.request_timeout / 1000
        events = (*_EVENTS, *(_SINCE_0_10 if request.NRI_version else ()))
        return nri.ConfigureResponse(events=sum(1 << (event - 1) for event in events)).SerializeToString()

    def _synchronize(self, request: nri.SynchronizeRequest) -> bytes:
        self.front.told.update(each.id for each in request.containers)
        if not request.more:
            self._accepted.set()
        return nri.SynchronizeResponse(more=request.more).SerializeToString()


async def _register(connection: Connection) -> None:
    request = nri.RegisterPluginRequest(plugin_name=NAME, plugin_idx=INDEX)
    try:
        async with asyncio.timeout(REGISTER_S):
            await connection.call("RegisterPlugin", request.SerializeToString())
    except TimeoutError as error:
        raise Ended(f"the runtime did not register criproxy within {REGISTER_S:g} s") from error
