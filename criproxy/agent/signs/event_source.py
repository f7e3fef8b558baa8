"""Where Events come from: what changes in the daemon's view, and the records of its history.

The history is asked only when the view has changed. What was before the start of the agent is not told: it may have
been told by the run before.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from criproxy.agent import View
from criproxy.agent.node_view import NodeView
from criproxy.agent.signs import event_texts
from criproxy.agent.signs.events import EventWriter
from criproxy.agent.signs.wanted import Condition
from criproxy.errors import CriproxyError
from criproxy.model.text.bounded import bounded_text
from criproxy.process.tasks import wait_at_most

MOST_EXPLAINED = 5
"""Refused containers about which the daemon is asked in one round: each answer searches for what would make room."""
ASK_S = 20.0
GAP_S = 5.0
"""The shortest time between two questions about the history: on a busy node, the view changes each second."""


@dataclass(slots=True, repr=False)
class EventSource:
    """Tells the writer what happens.

    Args:
        view: what the daemon says.
        writer: gets what happens.
        clock: seconds since the epoch.
        gap_s: the shortest time between two questions about the history.
        why_back: returns why the rollout has ended the try of the policy with this hash; empty: it has not.
    """

    view: NodeView
    writer: EventWriter
    clock: Callable[[], float] = time.time
    gap_s: float = GAP_S
    why_back: Callable[[str], str] = lambda _: ""
    _before: View | None = None
    _last: int | None = None
    """The number of the last record that is known; None: none was asked for."""
    _explained: int = 0

    async def run(self) -> None:
        """Follow for ever: the view at each change, the history less often."""
        loop, asked_s, unread = asyncio.get_running_loop(), float("-inf"), False
        while True:
            seen, pause_s = self.view.version, None
            if self.view.last is not None and not self.view.problem:
                unread |= self._compare(self.view.last)
                if unread and (pause_s := asked_s + self.gap_s - loop.time()) <= 0:
                    unread, asked_s, pause_s = False, loop.time(), None
                    await self._read()
            await wait_at_most(pause_s, self.view.changed(seen))

    def tell(self, condition: Condition) -> None:
        """Tell that the Node's condition has another status."""
        if happening := event_texts.of_condition(condition, self.view.node_name, self.clock()):
            self.writer.add(happening)

    def tell_of_cards(self, reason: str, message: str, is_warning: bool) -> None:
        """Tell of the configuration of cards that the label of the node chooses."""
        name, at_s = self.view.node_name, self.clock()
        self.writer.add(event_texts.about_node(reason, message, name, at_s, is_warning=is_warning))

    def _compare(self, now: View) -> bool:
        """Tell what has happened to the node; return whether the view is another one than before."""
        for happening in event_texts.of_node(self._before, now, self.view.node_name, self.clock(), self.why_back):
            self.writer.add(happening)
        before, self._before = self._before, now
        return before is not now

    async def _read(self) -> None:
        """Tell what the history has about pods."""
        try:
            for event in await self._records():
                await self._tell_of_pod(event)
        except CriproxyError:
            return  # the next change asks again, from the same record; the view says that the daemon does not answer

    async def _records(self) -> list[Mapping[str, Any]]:
        """Return the new records; none the first time."""
        after: Mapping[str, Any] = {"since_s": self.clock()} if self._last is None else {"after": self._last}
        answer = await self.view.ask("events", after, ASK_S)
        is_first, self._last = self._last is None, int(answer["last"])
        self._explained = 0
        return [] if is_first else list(answer["events"])

    async def _tell_of_pod(self, event: Mapping[str, Any]) -> None:
        happening = event_texts.of_pod(event)
        if happening is None or happening.at_s < self.clock() - self.writer.limits.stale_s:
            return
        if event["kind"] == "refused" and self.writer.is_due(happening) and self._explained < MOST_EXPLAINED:
            self._explained += 1
            happening = await self._with_help(happening, str(event["container"]))
        self.writer.add(happening)

    async def _with_help(self, happening: event_texts.Happening, container: str) -> event_texts.Happening:
        try:
            explained = await self.view.ask("explain", {"container": container}, ASK_S)
        except CriproxyError:  # it may be gone already
            return happening
        if text := event_texts.would_help(explained, happening.namespace):
            return replace(happening, message=bounded_text(f"{happening.message}; {text}", event_texts.MOST_CHARS))
        return happening
