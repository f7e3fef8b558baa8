"""An event loop whose clock is virtual: where nothing is left to do, it is the time of the next timer.

Work that would go to threads is done at once, and so is that of programs, so that a seed stands for the same
life in every run. What the kernel tells at once, such as inotify, is heard before the clock moves.
"""

import asyncio
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import grpc
import pytest
from grpc.aio import AioRpcError

from criproxy.deviceplugin import serve
from criproxy.deviceplugin.cards import inventory, nvml_inventory
from criproxy.deviceplugin.health.cards_health import CardsHealth
from criproxy.deviceplugin.server import plugin
from criproxy.host import patience
from criproxy.process import children
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed, Refuse, Rule, Table
from lab.lives import memory
from lab.lives.memory import Channel, Context, Serving
from tests.node import world

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Stuck(AssertionError):
    """Nothing will ever happen again."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """For `asyncio.Runner`."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Seconds since some time before the life."""
        return self.now_s

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Do the work now."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 (whoever waits gets it)
            future.set_exception(error)
        return future


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, or nothing once the clock has moved."""
        found = super().select(0)
        if not found and timeout is None:
            raise Stuck("nothing will ever happen again")
        if not found and timeout:
            self._loop.now_s += timeout
        return found


class InlineThread(threading.Thread):
    """One whose work is done by whoever starts it."""

    def start(self) -> None:
        """Do the work."""
        self.run()


class Program:
    """In place of `criproxy.process.children.Child`: a program's output up to its end, or what a FIFO gets."""

    follow: Callable[[Callable[[bytes], None]], Callable[[], None]]
    """Hands over lines of NVML's events from now on, until what it returns is called."""

    def __init__(self) -> None:
        self.status: int | None = None
        self._unfollow: Callable[[], None] | None = None

    async def start(self, command: Sequence[str], longest_bytes: int = 0) -> asyncio.StreamReader:
        """Its standard output."""
        reader = asyncio.StreamReader()
        if command[0] == "/bin/sh":
            self._unfollow = Program.follow(reader.feed_data)
            return reader
        output = _output(command)
        self.status = int(output is None)
        reader.feed_data(output or b"")
        reader.feed_eof()
        return reader

    async def ended(self) -> int:
        """Its exit status."""
        assert self.status is not None
        return self.status

    async def end_rest(self) -> None:
        """It has left nothing."""

    async def end(self) -> None:
        """End it."""
        if self._unfollow is not None:
            self._unfollow()


def _output(command: Sequence[str]) -> bytes | None:
    """What /bin/cat prints of a file; None where it fails."""
    assert command[0] == "/bin/cat", command
    try:
        return Path(command[1]).read_bytes()
    except FileNotFoundError:
        return None


class Proxy:
    """In place of `criproxy.wire.server.Proxy`: the rules of the table, without HTTP/2 around them."""

    def __init__(self, runtime_path: str, table: Table, *, on_error: Any, on_runtime_lost: Callable[[], None]) -> None:  # noqa: ANN401
        self._runtime = Channel(f"unix://{runtime_path}")
        self._table = table
        self._on_error = on_error
        self._on_runtime_lost = on_runtime_lost
        self._numbers = count(1)
        self._serving = Serving(lambda path: grpc.unary_unary_rpc_method_handler(partial(self._call, path)))

    async def start(self, sock: socket.socket) -> None:
        """Answer at *sock*."""
        self._serving.open(sock.getsockname())

    def use(self, table: Table) -> None:
        """Apply other rules."""
        self._table = table

    async def drain(self, grace_s: float) -> None:
        """Answer no more."""
        if self._serving.calls:
            await asyncio.wait(self._serving.calls, timeout=grace_s)
        self._serving.close()
        await self._runtime.close()

    async def _call(self, path: str, data: bytes, context: Context) -> bytes:
        rule = self._table.get(path, Rule())
        call = Call(path, 1, next(self._numbers), "identity")
        call.request, call.rule = data, rule
        verdict = await self._verdict(rule, call, data)
        if isinstance(verdict, Refuse):
            _tell(rule, call, OutcomeKind.NOT_SENT)
            code = next(each for each in grpc.StatusCode if each.value[0] == verdict.code.value)
            await context.abort(code, verdict.text)
        try:
            reply: bytes = await self._runtime.unary_unary(path)(data if verdict.message is None else verdict.message)
        except AioRpcError as error:
            is_away = error.code() is grpc.StatusCode.UNAVAILABLE
            _tell(rule, call, OutcomeKind.UNKNOWN if is_away else OutcomeKind.FAILED)
            if is_away:
                self._on_runtime_lost()
            raise
        except asyncio.CancelledError:
            _tell(rule, call, OutcomeKind.UNKNOWN)
            raise
        edited = rule.edit(call, reply) if rule.edit else None
        _tell(rule, call, OutcomeKind.OK, reply)
        return reply if edited is None else edited

    async def _verdict(self, rule: Rule, call: Call, data: bytes) -> Proceed | Refuse:
        if rule.hold is None:
            return Proceed()
        try:
            return await rule.hold(call, data)
        except Exception as error:  # noqa: BLE001 (as the data plane)
            verdict: Proceed | Refuse = await self._on_error(call, data, error)
            return verdict


def _tell(rule: Rule, call: Call, kind: OutcomeKind, reply: bytes | None = None) -> None:
    if rule.done:
        rule.done(call, Outcome(kind, reply))


def install(patch: pytest.MonkeyPatch, loop: VirtualLoop) -> None:
    """Let everything in this process use the virtual clock, and no sockets, threads or programs that run beside it."""
    patch.setattr(patience, "Thread", InlineThread)
    patch.setattr(children.Child, "__new__", lambda _: Program())
    for module in (inventory, nvml_inventory, plugin):
        patch.setattr(module, "monotonic", loop.time)
    patch.setattr(serve, "CardsHealth", partial(CardsHealth, clock=loop.time))
    memory.install(patch)
    patch.setattr(world, "Proxy", Proxy)
