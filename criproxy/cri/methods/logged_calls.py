"""``--trace-calls``: writes chosen calls to the log, request and reply, without secrets (see `redact`)."""

import difflib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from google.protobuf.message import DecodeError, Message

from criproxy.cri.methods.methods import BY_PATH, METHODS, Method
from criproxy.cri.methods.redact import to_plain
from criproxy.errors import UsageError
from criproxy.wire.calls import (
    Call,
    DoneHandler,
    EachHandler,
    HoldHandler,
    Outcome,
    Proceed,
    Refuse,
    Rule,
    Table,
    Verdict,
)

LIMIT_CHARS = 16_384
"""The longest JSON of one message; longer ones are cut."""

Write = Callable[..., None]
"""Receives an event and keys, like a method of a structlog logger."""


def resolve(names: Iterable[str]) -> frozenset[str]:
    """Return the paths for *names*: short names, full paths, or ``*`` for every method of CRI.

    Raises:
        UsageError: a name is unknown; the text has the most similar one.
    """
    found: set[str] = set()
    for name in names:
        if name == "*":
            found.update(BY_PATH)
        elif name in METHODS:
            found.update(METHODS[name].paths)
        elif name in BY_PATH:
            found.add(name)
        else:
            near = difflib.get_close_matches(name, [*METHODS, *BY_PATH], n=1, cutoff=0.0)
            raise UsageError(f"--trace-calls: CRI has no method {name!r}; did you mean {near[0]}?")
    return frozenset(found)


def traced(table: Table, paths: frozenset[str], write: Write) -> Table:
    """Return *table* with the calls to *paths* also passed to *write*.

    A traced call that would pass through is watched instead: its messages are copied.
    """
    tracer = _Tracer(write)
    return {**table, **{path: tracer.rule(BY_PATH[path], table.get(path, Rule())) for path in paths}}


class _Tracer:
    def __init__(self, write: Write) -> None:
        self._write = write
        self._verdicts: dict[tuple[int, int], Verdict] = {}
        """(connection, stream) of a held call that has not ended → the verdict of its handler."""

    def rule(self, method: Method, inner: Rule) -> Rule:
        """Return *inner* with tracing around its handlers."""
        return replace(
            inner,
            hold=self._around_hold(inner.hold) if inner.hold else None,
            done=self._around_done(method, inner.done),
            each=self._around_each(method, inner.each) if method.server_streaming else inner.each,
        )

    def _around_hold(self, inner: HoldHandler) -> HoldHandler:
        async def hold(call: Call, message: bytes) -> Verdict:
            verdict = self._verdicts[call.connection, call.stream] = await inner(call, message)
            return verdict

        return hold

    def _around_done(self, method: Method, inner: DoneHandler | None) -> DoneHandler:
        def done(call: Call, outcome: Outcome) -> None:
            verdict = self._verdicts.pop((call.connection, call.stream), None)
            if inner is not None:
                inner(call, outcome)
            self._log_end(method, call, outcome, verdict)

        return done

    def _around_each(self, method: Method, inner: EachHandler | None) -> EachHandler:
        def each(call: Call, message: bytes) -> None:
            if inner is not None:
                inner(call, message)
            self._write("call message", **_name(call), reply=_render(method.reply, message))

        return each

    def _log_end(self, method: Method, call: Call, outcome: Outcome, verdict: Verdict | None) -> None:
        keys = _name(call) | {"outcome": outcome.kind.value, "duration_s": round(time.monotonic() - call.begun_s, 6)}
        keys["request"] = _render(method.request, call.request)
        match verdict:
            case Refuse(code, text):
                keys |= {"refused": code.name, "reason": text}
            case Proceed(message) if message is not None:
                keys["sent"] = _render(method.request, message)
        if outcome.reply is not None and not method.server_streaming:
            keys["reply"] = _render(method.reply, outcome.reply)
        self._write("call", **keys)


def _name(call: Call) -> dict[str, Any]:
    return {"method": call.method, "connection": call.connection, "stream": call.stream}


def _render(kind: type[Message], data: bytes | None) -> object:
    """Return the message as plain data; if it is unreadable, only its size, since its bytes may contain secrets."""
    if data is None:
        return "<unreadable or too large>"
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return f"<{len(data)} bytes that are no {kind.DESCRIPTOR.name}>"
    plain = to_plain(message)
    text = json.dumps(plain, ensure_ascii=False)
    if len(text) <= LIMIT_CHARS:
        return plain
    return f"{text[:LIMIT_CHARS]}… and {len(text) - LIMIT_CHARS} characters more"
