"""Checks what is around the daemon: its sockets, those behind it, and what the kubelet in front of it reserves."""

import asyncio
import resource
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from socket import socket
from threading import Event
from typing import TYPE_CHECKING

from criproxy.cri.here import criproxy_behind, programs_of
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.daemon.options import MAIN, Endpoints
from criproxy.errors import CriproxyError, reason_of
from criproxy.host.patience import Hangs, Patience
from criproxy.node.controller import Controller
from criproxy.placement.options.policy_options import options_of
from criproxy.process.heartbeat import joint_s
from criproxy.process.log import structlog
from criproxy.wire.sockets import Listener

if TYPE_CHECKING:
    from criproxy.install.kubelet_cpus import Reservation

FIRST_PAUSE_S, PAUSE_S = 2.0, 60.0
"""Pauses before checks: at first and while the runtime does not answer, and later."""
FILES_S = 5.0
"""How often the files of the daemon's sockets are looked for."""
PROBE_S = 1.0
"""How long the runtime may take to accept a connection, and the kubelet's files to be read."""

OPEN_FILES_MIN = 1024
"""With fewer, the warning at the start: two for each connection of the kubelet, and one for each client beside it."""

Serve = Callable[[socket], Awaitable[None]]

log = structlog.get_logger("criproxy.daemon")


@dataclass(slots=True, repr=False)
class Behind:
    """Checks what is behind the sockets: two criproxies in a chain would place the same containers."""

    endpoints: Endpoints
    controller: Controller
    problem: str = ""
    """Why the runtime is not a runtime, in a sentence; empty if it is one."""
    _programs: Mapping[str, str] = field(default_factory=dict)
    """The programs of the runtime handlers, as far as the runtime names them."""

    async def watch(self) -> None:
        """Check periodically whether the runtime is another criproxy, and what its handlers run."""
        while not self.controller.policy_switch.active:  # noqa: ASYNC110 (no container is placed: nobody needs to know)
            await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(FIRST_PAUSE_S)  # other modules are being loaded at a start
        while True:
            client = RuntimeClient(f"unix://{self.endpoints.runtime}", PROBE_S)
            found: str | None = None
            try:
                found = await criproxy_behind(client)
                if self.controller.devices.rules is not None:
                    self._programs = programs_of(await client.status_info())
            except RuntimeCallError:
                pass  # it is away, and may be replaced by another one
            finally:
                await client.close()
            if found is not None:
                self._report(found)
            await asyncio.sleep(joint_s(FIRST_PAUSE_S if found is None else PAUSE_S))

    def open_classes(self) -> Iterator[str]:
        """Yield a sentence for each class of devices whose cards images can ask for in some runtime handlers."""
        rules = self.controller.devices.rules
        for kind in rules.classes if rules is not None else ():
            for handler in kind.open_in(self._programs):
                which = f"the runtime handler {handler}" if handler else "the default runtime handler"
                yield (
                    f"{which} runs {self._programs[handler]}, which gives cards to every image that asks for them with "
                    f"{kind.visible_env}; the class {kind.name} does not prevent this there, because its runtimes are "
                    f'{", ".join(kind.runtimes)}: set runtimes: ["*"] in the class, or add the name of the handler ("" '
                    "for the default one) to its runtimes"
                )

    async def unreachable(self) -> str:
        """Return which socket behind the daemon does not answer, unless the controller has said so already; else empty.

        The controller asks only now and then, with the policy none never, and never a separate image service.
        """
        controller = self.controller
        asked = (MAIN,) if controller.policy_switch.active and (controller.resync.error or not controller.ready) else ()
        return await probe(self.endpoints, asked) or ""

    def _report(self, found: str) -> None:
        path = self.endpoints.runtime
        text = (
            f"the process listening on {path} is another criproxy ({found}), not a runtime: "
            "set the runtime's own socket with --runtime-endpoint; otherwise, both place the same containers"
        )
        if found and not self.problem:
            log.error("the runtime is another criproxy", endpoint=path, found=found)
        self.problem = text if found else ""


@dataclass(slots=True, repr=False)
class SocketFiles:
    """Watches the files of the sockets on which the daemon listens, and listens again when one is gone."""

    served: Mapping[str, tuple[Listener, Serve]]
    """By name: the socket, and what serves another one in its place."""
    _problems: dict[str, str] = field(default_factory=dict)

    @property
    def problem(self) -> str:
        """Which socket cannot be reached, in a sentence; empty if none is lost."""
        return next(iter(self._problems.values()), "")

    async def watch(self) -> None:
        """Look for the files, for ever; in a thread of their own, which need not wake up the loop if they are there."""
        ended = Event()
        try:
            while True:
                looked = Patience().begin("the files of the sockets", partial(self._until_lost, ended))
                await self._renew(await asyncio.wrap_future(looked))
        finally:
            ended.set()

    def _until_lost(self, ended: Event) -> set[str]:
        """Return the names of the sockets whose files are gone, or that none is any more. May block."""
        while not ended.wait(FILES_S):
            lost = {name for name, (listener, _) in self.served.items() if listener.is_lost}
            if lost or self._problems:
                return lost
        return set()

    async def _renew(self, lost: set[str]) -> None:
        """Listen again on the sockets whose files are *lost*; the files of others may have been put back."""
        for name, (listener, serve) in self.served.items():
            if name not in lost:
                self._problems.pop(name, None)
                continue
            try:
                await asyncio.to_thread(listener.renew)
            except CriproxyError as error:
                text = f"nobody can connect to criproxy on {listener.path}: the socket's file is gone, and {error}"
                self._problems[name] = text
            else:
                await serve(listener.sock)
                self._problems.pop(name, None)
                log.warning("listening again: the socket's file was gone", path=listener.path)


@dataclass(slots=True, repr=False)
class KubeletCpus:
    """Reads periodically which CPUs the kubelet reserves."""

    host_root: Path
    controller: Controller
    nri: bool = False
    """Whether criproxy is a plugin of the runtime: then, this looks for what does not go together with one, too."""
    endpoint_of_ours: str = ""
    """The kubelet's endpoint, if that is a socket of criproxy."""
    rivals: Sequence[str] = ()
    """Sentences about other programs that place containers."""
    _found: "Reservation | None" = None
    """The last one that could be read; None: there was no kubelet."""
    _unknown: Sequence[str] = ()
    """Why it cannot be read now, a sentence for each reason: then the last one counts on."""
    _patience: Patience = field(default_factory=Patience)

    async def watch(self) -> None:
        """Read the kubelet's files periodically."""
        await asyncio.sleep(FIRST_PAUSE_S)
        while True:
            await self.read()
            await asyncio.sleep(joint_s(PAUSE_S))

    async def read(self) -> None:
        """Read the kubelet's files."""
        try:
            read = partial(_reservation, self.host_root)
            found, self._unknown = await self._patience.wait("the kubelet's configuration", read, PROBE_S)
        except Hangs as error:
            self._unknown = (f"{error}; so nobody knows which CPUs the kubelet reserves",)
            return
        if not self._unknown:
            self._found = found
        if self.nri:
            with suppress(Hangs):
                look = partial(_beside_nri, self.host_root)
                beside = await self._patience.wait("the list of processes", look, PROBE_S)
                self.endpoint_of_ours, self.rivals = beside

    def notes(self) -> Iterator[str]:
        """Yield sentences if the policy reserves other CPUs or that is unknown; none if it places no containers."""
        if not self.controller.policy_switch.active:
            return
        if difference := self._difference():
            yield difference
        yield from self._unknown

    def _difference(self) -> str:
        if self._found is None:
            return ""
        options, topology = options_of(self.controller.context.state.policy), self.controller.node.topology
        return self._found.difference(options.reserved(topology) & topology.cpus, options.usable(topology).cpus)


def _reservation(host_root: Path) -> "tuple[Reservation | None, Sequence[str]]":
    """Return what the kubelet reserves, and why that is unknown; None, too, without a kubelet."""
    from criproxy.install.host import Host
    from criproxy.install.kubelet import read_kubelet
    from criproxy.install.kubelet_cpus import cannot_read, reservation, unknown

    try:
        kubelet = read_kubelet(Host(host_root))
        return reservation(kubelet), tuple(unknown(kubelet))
    except OSError as error:
        return None, (cannot_read(f"{error.filename}: {reason_of(error)}"),)


def _beside_nri(host_root: Path) -> tuple[str, Sequence[str]]:
    """Return the kubelet's endpoint if it is a socket of criproxy, and what is said about other programs."""
    from criproxy.install import paths
    from criproxy.install.host import Host
    from criproxy.install.kubelet import read_kubelet
    from criproxy.install.plan import rivals

    try:
        kubelet = read_kubelet(Host(host_root))
        return kubelet.endpoint if paths.is_ours(kubelet.endpoint) else "", tuple(rivals(kubelet))
    except OSError:  # the reservation says so
        return "", ()


async def probe(endpoints: Endpoints, without: tuple[str, ...] = ()) -> str | None:
    """Return the problem of the first socket, except those *without*, that does not accept connections; else None."""
    for name, path in _behind(endpoints):
        if name in without:
            continue
        try:
            async with asyncio.timeout(PROBE_S):
                _, writer = await asyncio.open_unix_connection(path)
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "strerror", None) or "no answer"
            return f"the {'runtime' if name == MAIN else 'image service'} on {path} cannot be reached: {reason}"
        writer.close()
    return None


def _behind(endpoints: Endpoints) -> Iterator[tuple[str, str]]:
    yield MAIN, endpoints.runtime
    yield from ((name, path) for name, (_, path) in endpoints.pairs.items() if name != MAIN)


def raise_open_files() -> None:
    """Raise the limit on open files as far as this process may, and warn if that is little."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError):  # the system call filter of the service refuses it
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limit < OPEN_FILES_MIN:
        text = (
            "this process may have so few open files that connections may be refused: raise LimitNOFILE= or ulimit -n"
        )
        log.warning(text, limit=limit, wanted=OPEN_FILES_MIN)
