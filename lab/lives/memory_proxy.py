"""criproxy's data plane without HTTP/2: the rules of the table, applied to calls of `memory`."""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import grpc
from grpc.aio import AioRpcError

from criproxy.errors import StatusCode
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed, Refuse, Rule, Table
from lab.lives.memory import Channel, Context, Serving, serve, unserve


class Proxy:
    """In place of `criproxy.wire.server.Proxy`: the rules of the table, without HTTP/2 around them."""

    def __init__(self, runtime_path: str, table: Table, *, on_error: Any, on_runtime_lost: Callable[[], None]) -> None:  # noqa: ANN401
        self._runtime = Channel(f"unix://{runtime_path}")
        self._table = table
        self._on_error = on_error
        self._on_runtime_lost = on_runtime_lost
        self._numbers = count(1)
        self._serving = Serving(lambda path: grpc.unary_unary_rpc_method_handler(partial(self._call, path)))
        self._number = 0

    async def start(self, sock: socket.socket) -> None:
        """Answer at *sock*."""
        self._number = serve(sock.getsockname(), self._serving)

    def use(self, table: Table) -> None:
        """Apply other rules."""
        self._table = table

    async def drain(self, grace_s: float) -> None:
        """Answer no more."""
        if self._serving.calls:
            await asyncio.wait(self._serving.calls, timeout=grace_s)
        unserve(self._number, self._serving)
        await self._runtime.close()

    async def _call(self, path: str, data: bytes, context: Context) -> bytes:
        rule = self._table.get(path, Rule())
        call = Call(path, 1, next(self._numbers), "identity")
        call.request, call.rule = data, rule
        verdict = await self._verdict(rule, call, data)
        if isinstance(verdict, Refuse):
            _tell(rule, call, OutcomeKind.NOT_SENT)
            await context.abort(_code(verdict.code), verdict.text)
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
        if rule.done:
            rule.done(call, Outcome(OutcomeKind.OK, reply))
        return reply if edited is None else edited

    async def _verdict(self, rule: Rule, call: Call, data: bytes) -> Proceed | Refuse:
        if rule.hold is None:
            return Proceed()
        try:
            return await rule.hold(call, data)
        except Exception as error:  # noqa: BLE001 (as the data plane)
            verdict: Proceed | Refuse = await self._on_error(call, data, error)
            return verdict


def _tell(rule: Rule, call: Call, kind: OutcomeKind) -> None:
    if rule.done:
        rule.done(call, Outcome(kind))


def _code(code: StatusCode) -> grpc.StatusCode:
    return next(each for each in grpc.StatusCode if each.value[0] == code.value)
