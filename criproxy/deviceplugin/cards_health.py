"""The health of all cards: what was noticed of each, when they recover, and who is told."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from criproxy.deviceplugin.resources import Unhealthy
from criproxy.deviceplugin.seen import Key, Seen
from criproxy.devices.health import (
    HOLD_DOWN_S,
    CardHealth,
    Change,
    began,
    call_failed,
    call_works,
    command_healthy,
    ended,
    new,
    node_back,
    node_vanished,
    step,
)
from criproxy.observe.logger import Log

GONE = "card"
"""The key of the cause that a card is not there any more."""
DESCRIBE = "NVML"
"""The same: the calls that describe a card."""
KEPT_S = 3600.0
"""So long a card that is gone is remembered."""
NOT_KNOWN = "its health is unknown: the health command of its class has not reported yet"


@dataclass(slots=True)
class Known:
    """What is known of one card."""

    health: CardHealth
    seen: Seen
    nodes: frozenset[str]
    """All that it ever had."""
    gone_s: float | None = None
    """Since when it is not there, on the clock of its health."""
    reason: str = ""
    """Why it is unhealthy, or was last."""
    turned_s: float | None = None
    """When it became so last, in seconds since the epoch."""
    is_awaited: bool = False
    """Whether the health command of its class has yet to judge it: it may have been bad for long."""

    @property
    def healthy(self) -> bool:
        """Whether the kubelet may allocate it."""
        return self.health.healthy and not self.is_awaited

    @property
    def why(self) -> str:
        """Why it is not healthy, or was not last."""
        return NOT_KNOWN if self.is_awaited and self.health.healthy else self.reason


@dataclass(slots=True, repr=False)
class CardsHealth:
    """The health of the node's cards; for the event loop's thread.

    Args:
        changed: called when other cards than before are unhealthy.
        turned: called with each card that becomes unhealthy or healthy.
        log: is told the same.
        clock: seconds that do not go back.
        now: seconds since the epoch.
    """

    changed: Callable[[], None]
    turned: Callable[[Key, Known], None]
    log: Log
    hold_down_s: float = HOLD_DOWN_S
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    known: dict[Key, Known] = field(default_factory=dict)
    _commanded: frozenset[str] = frozenset()
    _timer: asyncio.TimerHandle | None = None

    def see(self, cards: Mapping[Key, Seen], classes: Iterable[str]) -> None:
        """Note which cards there are.

        Args:
            cards: those.
            classes: the names of the classes that were looked for; what is known of others is forgotten.
        """
        wanted, now_s = frozenset(classes), self.clock()
        self.known = {key: each for key, each in self.known.items() if key[0] in wanted and not _is_old(each, now_s)}
        changes, before = dict[Key, tuple[Change, ...]](), self.awaited()
        for key, seen in cards.items():
            if (known := self.known.get(key)) is None:
                self.known[key] = known = self._new(key, seen)
            changes[key] = _there(known, seen)
        for key in self.known.keys() - cards.keys():
            changes[key] = _gone(self.known[key], now_s)
        for kind in sorted(self.awaited() - before):
            self.log.info("cards count as unhealthy until their health command has reported", **{"class": kind})
        self._note(changes)

    def note(self, changes: Mapping[Key, Change]) -> None:
        """Note something about each of several cards; those that are not known do not matter."""
        self._note({key: (change,) for key, change in changes.items()})

    def expect(self, classes: Iterable[str]) -> None:
        """Have cards of these classes judged by health commands: new ones are not healthy before that."""
        former, self._commanded = self._commanded, frozenset(classes)
        for kind in former - self._commanded:
            self.judge(kind, dict.fromkeys(self.of(kind), command_healthy()))

    def awaited(self) -> frozenset[str]:
        """The classes that have cards which no health command has judged yet."""
        return frozenset(kind for (kind, _), known in self.known.items() if known.is_awaited)

    def judge(self, kind: str, changes: Mapping[Key, Change]) -> None:
        """Note what the health command of a class says of all its cards."""
        awaited = [known for key in self.of(kind) if (known := self.known[key]).is_awaited]
        for known in awaited:
            known.is_awaited = False
        self._note({key: (change,) for key, change in changes.items()}, is_news=bool(awaited))

    def hold_down(self, seconds: float) -> None:
        """Let cards recover after so long from now on."""
        self.hold_down_s = seconds
        for known in self.known.values():
            known.health = replace(known.health, hold_down_s=seconds)
        self._note({})

    def unhealthy(self) -> Unhealthy:
        """The ids of those that do not work, by class."""
        found: dict[str, list[str]] = {}
        for (kind, card), known in self.known.items():
            if not known.healthy:
                found.setdefault(kind, []).append(card)
        return found

    def of(self, kind: str, names: Iterable[str] | None = None) -> list[Key]:
        """The cards of a class, or those of them that have one of *names*."""
        wanted = None if names is None else frozenset(names)
        return [
            key
            for key, known in self.known.items()
            if key[0] == kind and (wanted is None or not wanted.isdisjoint({key[1], *known.seen.names}))
        ]

    def stop(self) -> None:
        """Notice no more recoveries."""
        if self._timer is not None:
            self._timer.cancel()

    def _new(self, key: Key, seen: Seen) -> Known:
        health = new(self.clock(), hold_down_s=self.hold_down_s)
        return Known(health, seen, seen.nodes, is_awaited=key[0] in self._commanded)

    def _note(self, changes: Mapping[Key, tuple[Change, ...]], *, is_news: bool = False) -> None:
        now_s = self.clock()
        for key, known in self.known.items():
            before = known.health
            known.health = step(before, now_s, *changes.get(key, ()))
            known.reason = known.health.reason or known.reason
            if before.healthy != known.health.healthy:
                is_news = True
                self._turn(key, known)
        self._wait()
        if is_news:
            self.changed()

    def _turn(self, key: Key, known: Known) -> None:
        kind, card = key
        if known.health.healthy:
            self.log.info("a card is healthy again", **{"class": kind, "card": card, "was": known.reason})
        else:
            known.turned_s = self.now()
            self.log.warning("a card is unhealthy", **{"class": kind, "card": card, "reason": known.reason})
        self.turned(key, known)

    def _wait(self) -> None:
        """Look again when the next card recovers."""
        self.stop()
        due = [at_s for known in self.known.values() if (at_s := known.health.recovers_at_s) is not None]
        if due:
            delay_s = max(min(due) - self.clock(), 0)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._note, {})


def _there(known: Known, seen: Seen) -> tuple[Change, ...]:
    """What has changed of a card that is there."""
    known.seen, known.gone_s = seen, None
    known.nodes |= seen.nodes
    missing = sorted(known.nodes - seen.nodes)
    described = call_failed(DESCRIBE, seen.problem) if seen.problem else call_works(DESCRIBE)
    return (ended(GONE), described, *map(node_back, sorted(seen.nodes)), *map(node_vanished, missing))


def _gone(known: Known, now_s: float) -> tuple[Change, ...]:
    """What has changed of one that is not."""
    known.gone_s = now_s if known.gone_s is None else known.gone_s
    return (began(GONE, "it no longer exists"),)


def _is_old(known: Known, now_s: float) -> bool:
    return known.gone_s is not None and now_s - known.gone_s > KEPT_S
