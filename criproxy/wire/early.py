"""Calls that come before anybody knows how to treat them: they wait, and then go by the rule of their method.

So the data plane can serve while the rest of the program is still being loaded: only calls that may have to be held,
watched or edited wait for it.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from criproxy.errors import StatusCode
from criproxy.wire.calls import Call, ErrorHandler, Outcome, Proceed, Refuse, Rule, Table, Verdict

WAIT_S = 30.0
"""How long a call waits at most; its client is told to try again."""

NO_RULE = Rule()


class Early:
    """Rules for the time before `settle`, and whoever began under them goes by the real ones from then on."""

    def __init__(self, paths: Iterable[str]) -> None:
        """Prepare rules for the methods with these *paths*: all that may ever have a real one."""
        rule = Rule(hold=self._hold, done=self._done, each=self._each, edit=self._edit)
        self.table: Table = dict.fromkeys(paths, rule)
        """For the data plane, until the real one is there."""
        self._settled = asyncio.Event()
        self._real: Table = {}
        self._on_error: ErrorHandler | None = None
        self._reason = f"criproxy has been starting for more than {WAIT_S:g} s"

    def settle(self, table: Table, on_error: ErrorHandler) -> None:
        """Let the calls that wait go on by *table*, and by *on_error* if its handlers fail."""
        self._real, self._on_error = table, on_error
        self._settled.set()

    def fail(self, reason: str) -> None:
        """There will be no real rules: refuse those who wait, and all who come, with *reason*."""
        self._reason = reason
        self._settled.set()

    async def on_error(self, call: Call, message: bytes | None, error: Exception) -> Verdict:
        """What becomes of a call whose message cannot be read or whose handler failed: as its real rule has it."""
        on_error = await self._known()
        if on_error is None:
            return Refuse(StatusCode.UNAVAILABLE, self._reason)
        return await on_error(call, message, error) if self._rule(call).hold else Proceed()

    async def _hold(self, call: Call, message: bytes) -> Verdict:
        if await self._known() is None:
            return Refuse(StatusCode.UNAVAILABLE, self._reason)
        hold = self._rule(call).hold
        return await hold(call, message) if hold else Proceed()

    async def _known(self) -> ErrorHandler | None:
        """Wait for `settle`; None if it did not come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await self._settled.wait()
        return self._on_error

    def _rule(self, call: Call) -> Rule:
        return self._real.get(call.method, NO_RULE)

    def _done(self, call: Call, outcome: Outcome) -> None:
        if done := self._rule(call).done:
            done(call, outcome)

    def _each(self, call: Call, message: bytes) -> None:
        if each := self._rule(call).each:
            each(call, message)

    def _edit(self, call: Call, message: bytes) -> bytes | None:
        edit = self._rule(call).edit
        return edit(call, message) if edit else None
