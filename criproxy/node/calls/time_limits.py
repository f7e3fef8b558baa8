"""How long criproxy may hold a call: `handler_timeout_s`, or `bypass_timeout_s` for creates in an automatic bypass.

All limits are on one timer: `asyncio.timeout` creates one for each call, which took 30 µs of the 1,100 µs by which a
create was delayed.
"""

import asyncio
from dataclasses import dataclass, field

from criproxy.errors import Fault
from criproxy.node.context import Context
from criproxy.wire.calls import Call, HoldHandler, Verdict


class Overdue(Fault):
    """A handler took too long; its effects are undone when the call ends."""

    hung = True


@dataclass(slots=True, eq=False)
class Limit:
    """The time limit of one call."""

    task: asyncio.Task[object]
    due_s: float
    """On the event loop's clock."""
    expired: bool = False


@dataclass(slots=True)
class SharedTimer:
    """Cancels tasks at their limits."""

    _open: dict[Limit, None] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None
    _next_s: float = 0.0
    """When the timer is due, if there is one: maybe earlier than necessary, but never later."""

    def begin(self, limit_s: float) -> Limit:
        """Cancel the current task in *limit_s* seconds, unless `end` comes before."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task
        limit = Limit(task, loop.time() + limit_s)
        self._open[limit] = None
        if self._timer is None or limit.due_s < self._next_s:
            self._set_timer(limit.due_s)
        return limit

    def end(self, limit: Limit) -> bool:
        """Remove *limit*; True if it had expired and nothing else has cancelled the task."""
        del self._open[limit]
        return limit.expired and not limit.task.uncancel()

    def _set_timer(self, when_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next_s = asyncio.get_running_loop().call_at(when_s, self._expire), when_s

    def _expire(self) -> None:
        self._timer, now_s = None, asyncio.get_running_loop().time()
        waiting = [limit for limit in self._open if not limit.expired]
        for limit in waiting:
            if limit.due_s <= now_s:
                limit.expired = True
                limit.task.cancel()
        if later := [limit.due_s for limit in waiting if not limit.expired]:
            self._set_timer(min(later))


@dataclass(slots=True)
class TimeLimits:
    """The limits of held calls, by the settings in force when a call begins."""

    context: Context
    timer: SharedTimer = field(default_factory=SharedTimer)

    def limited(self, hold: HoldHandler, *, hurry: bool = False) -> HoldHandler:
        """Return a handler that cancels *hold* at its time limit, and then raises `Overdue`.

        With *hurry*, the limit is shorter during an automatic bypass.
        """

        async def within(call: Call, message: bytes) -> Verdict:
            limit_s = self._limit_s(hurry=hurry)
            limit = self.timer.begin(limit_s)
            try:
                verdict = await hold(call, message)
            except BaseException as error:
                if self.timer.end(limit) and isinstance(error, asyncio.CancelledError):
                    name = call.method.rpartition("/")[2]
                    raise Overdue(f"criproxy did not finish {name} within {limit_s:g} s") from error
                raise
            self.timer.end(limit)
            return verdict

        return within

    def _limit_s(self, *, hurry: bool) -> float:
        settings = self.context.settings
        return settings.bypass_timeout_s if hurry and self.context.state.bypassed else settings.handler_timeout_s
