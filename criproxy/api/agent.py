"""The command ``agent``: a long poll, by which the node's agent follows the node.

The daemon looks at the node when a client asks and something has changed, at most once a second for all clients
together, and does nothing while nobody asks. What no event tells of, such as a kubelet that no longer calls, is found
when a poll ends.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from criproxy.api.live import LiveNode, encoded
from criproxy.api.views.node_view import to_values
from criproxy.errors import UsageError
from criproxy.host.numa import read_huge_pages
from criproxy.model.text.notices import Values
from criproxy.process.control_socket import Command, Encoded

LONGEST_WAIT_S = 30.0
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 5.0
_SILENT = ("kubelet", "nri")
"""Kinds of notices with which the calls of the kubelet, or their events, do not come here."""
PAUSE_RATIO = 20.0
"""Between these, the pause after a look is so many times longer than the CPU time of the look: large nodes are looked
at more rarely."""


def commands(live: LiveNode) -> Mapping[str, Command]:
    """Return the handler of the only command, for the control socket."""
    return {"agent": AgentPolls(live).command}


@dataclass(slots=True, repr=False)
class AgentPolls:
    """Answers the polls; all clients share the looks at the node."""

    live: LiveNode
    instance: str = field(default_factory=lambda: secrets.token_hex(8))
    """Another one after each start of the daemon."""
    revision: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    """Counts the changes, from a number that no former daemon has reached."""
    _answer: Encoded = field(default_factory=Encoded)
    """The last one."""
    _steady: bytes = b""
    """What makes the answer another one if it changes."""
    _next_s: float = float("-inf")
    """When the next look may be taken, on the clock of the event loop."""
    _change: "asyncio.Future[None] | None" = None
    """Done when the node has changed since the last look."""
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def command(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``agent``: arguments ``after``, ``wait_s`` and ``report``, see docs/agent.md.

        Raises:
            UsageError: an argument is wrong.
        """
        after, wait_s = _read(arguments)
        if (report := arguments.get("report")) is not None:
            self.live.controller.agent.read(report)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_s
        while True:
            left_s = deadline_s - loop.time()
            changed = self._change is None or self._change.done()
            if changed or left_s <= 0 or after != self.revision:
                await self._look_if_due()
            if self.revision != after or left_s <= 0:
                return self._answer
            await self._pause(left_s)

    async def _pause(self, left_s: float) -> None:
        """Wait for a change and for the time of the next look, at most for *left_s*."""
        if self._change is not None:
            await asyncio.wait({self._change}, timeout=left_s)
            if self._change.done():
                pause_s = self._next_s - asyncio.get_running_loop().time()
                await asyncio.sleep(max(0.0, min(pause_s, left_s)))

    async def _look_if_due(self) -> None:
        async with self._one:
            loop = asyncio.get_running_loop()
            if self._answer and loop.time() < self._next_s:
                return
            change = asyncio.ensure_future(self.live.controller.context.state.changed())  # also one during the look
            try:
                steady, answer, took_s = await self._look()
            except BaseException:
                change.cancel()
                raise
            if steady != self._steady:
                self.revision += 1
            self._steady, former, self._change = steady, self._change, change
            if former is not None:
                former.cancel()
            self._answer = await asyncio.to_thread(encoded, {**answer, "revision": self.revision})
            self._next_s = loop.time() + min(max(SHORTEST_PAUSE_S, PAUSE_RATIO * took_s), LONGEST_PAUSE_S)

    async def _look(self) -> tuple[bytes, Values, float]:
        """Return what makes a change, the answer, and the CPU time in seconds that they took.

        When the kubelet called last and how long a try still lasts move all the time: that is no change.
        """
        live, controller = self.live, self.live.controller
        situation = replace(live.now(await live.beside()), front=live.front())
        in_force, devices = controller.context.in_force, await live.inventory(of_plugin=True)
        kubelet, configuration = situation.front["kubelet"] or {}, situation.front["configuration"]
        through = kubelet.get("last_call") is not None and all(each.kind not in _SILENT for each in situation.notices)
        values: Values = {
            "runtime": situation.front["runtime"],
            "bypass": live.bypass(),
            "last_good": in_force.problem is not None and in_force.trial is None,
        }
        moving: Values = {
            "kubelet": {**{key: kubelet.get(key) for key in ("last_call", "last_call_s")}, "through": through},
            "configuration": configuration,
        }
        steady_of_moving = {"through": through, "configuration": {**configuration, "try": in_force.said()["until"]}}
        head, numa_nodes = live.head(), [each.id for each in situation.node.topology.nodes]
        known, host_root = controller.policy_switch.active and controller.ready, controller.context.settings.host_root

        def collect() -> tuple[bytes, Values, float]:
            begun_s = time.thread_time()
            pages = read_huge_pages(host_root, numa_nodes)
            values.update(to_values(situation, devices, pages, known=known))
            steady = encoded({**values, **steady_of_moving})
            return steady, {**head, "instance": self.instance, **moving, **values}, time.thread_time() - begun_s

        return await asyncio.to_thread(collect)


def _read(arguments: Mapping[str, Any]) -> tuple[int, float]:
    after, wait_s, report = arguments.get("after", 0), arguments.get("wait_s", 0), arguments.get("report", {})
    if isinstance(after, bool) or not isinstance(after, int):
        raise UsageError(f"after: must be a revision, not {after!r:.60}")
    if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not 0 <= wait_s <= LONGEST_WAIT_S:
        raise UsageError(f"wait_s: must be between 0 and {LONGEST_WAIT_S:g} seconds, not {wait_s!r:.60}")
    if report is not None and not isinstance(report, dict):
        raise UsageError(f"report: must be an object, not {report!r:.60}")
    return after, float(wait_s)
