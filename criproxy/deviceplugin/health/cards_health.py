"""The health of all cards: what has been observed of each card, when it recovers, and which callbacks are notified."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from criproxy.deviceplugin.cards.detected_cards import CardKey, DetectedCard
from criproxy.deviceplugin.health.health import (
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
from criproxy.deviceplugin.resources.resource_builder import Unhealthy
from criproxy.process.logger import Log

MISSING = "card"
"""Key of the cause that a card no longer exists."""
DESCRIPTION = "NVML"
"""Key of the cause that the calls that describe a card fail."""
MISSING_KEPT_S = 3600.0
"""How long a card that no longer exists is remembered."""
NOT_JUDGED = "its health is unknown: the health command of its class has not reported yet"


@dataclass(slots=True)
class CardState:
    """The state of one card."""

    health: CardHealth
    seen: DetectedCard
    nodes: frozenset[str]
    """All device nodes that the card ever had."""
    gone_s: float | None = None
    """When the card disappeared, on the clock of its health; None while it exists."""
    reason: str = ""
    """Why the card is unhealthy, or was the last time."""
    unhealthy_since_s: float | None = None
    """When the card last became unhealthy, in seconds since the epoch."""
    is_unjudged: bool = False
    """Whether the health command of its class has not judged the card yet: it may have been unhealthy for long."""

    @property
    def healthy(self) -> bool:
        """Whether the kubelet may allocate the card."""
        return self.health.healthy and not self.is_unjudged

    @property
    def shown_reason(self) -> str:
        """Why the card is unhealthy, or was the last time."""
        return NOT_JUDGED if self.is_unjudged and self.health.healthy else self.reason


@dataclass(slots=True, repr=False)
class CardsHealth:
    """The health of the node's cards; to be used in the thread of the event loop.

    Args:
        changed: Called when the set of unhealthy cards has changed.
        health_changed: Called with each card that becomes unhealthy or healthy.
        query: Called when the hold-down of a card is over: it recovers only after an answer of its driver.
        log: Gets a line for each card that becomes unhealthy or healthy.
        clock: Returns monotonic seconds.
        now: Returns seconds since the epoch.
    """

    changed: Callable[[], None]
    health_changed: Callable[[CardKey, CardState], None]
    log: Log
    query: Callable[[], None] = lambda: None
    hold_down_s: float = HOLD_DOWN_S
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    known: dict[CardKey, CardState] = field(default_factory=dict)
    _judged_classes: frozenset[str] = frozenset()
    _timer: asyncio.TimerHandle | None = None
    _hold_downs_until_s: float = float("-inf")
    """Cards whose hold-down was over by then have recovered, or wait for an answer of their driver."""

    def update_cards(self, cards: Mapping[CardKey, DetectedCard], classes: Iterable[str]) -> None:
        """Update the set of existing cards.

        Args:
            cards: The cards that exist.
            classes: Names of the classes that were scanned; the state of cards of other classes is dropped.
        """
        wanted, now_s = frozenset(classes), self.clock()
        self.known = {key: each for key, each in self.known.items() if key[0] in wanted and not _is_old(each, now_s)}
        changes, before = dict[CardKey, tuple[Change, ...]](), self.unjudged_classes()
        for key, seen in cards.items():
            if (known := self.known.get(key)) is None:
                self.known[key] = known = self._new(key, seen)
            changes[key] = _changes_of_existing(known, seen)
        for key in self.known.keys() - cards.keys():
            changes[key] = _changes_of_missing(self.known[key], now_s)
        for kind in sorted(self.unjudged_classes() - before):
            self.log.info("cards count as unhealthy until their health command has reported", **{"class": kind})
        self._apply(changes)

    def apply(self, changes: Mapping[CardKey, Change]) -> None:
        """Apply a change to each of several cards; unknown cards are ignored."""
        self._apply({key: (change,) for key, change in changes.items()})

    def expect_verdicts(self, classes: Iterable[str]) -> None:
        """Make health commands judge the cards of *classes*: until then, new cards are not healthy."""
        former, self._judged_classes = self._judged_classes, frozenset(classes)
        for kind in former - self._judged_classes:
            self.apply_verdict(kind, dict.fromkeys(self.of(kind), command_healthy()))

    def unjudged_classes(self) -> frozenset[str]:
        """Return the classes with cards that no health command has judged yet."""
        return frozenset(kind for (kind, _), known in self.known.items() if known.is_unjudged)

    def apply_verdict(self, kind: str, changes: Mapping[CardKey, Change]) -> None:
        """Apply the verdict of the health command of a class on all its cards."""
        unjudged_classes = [known for key in self.of(kind) if (known := self.known[key]).is_unjudged]
        for known in unjudged_classes:
            known.is_unjudged = False
        self._apply({key: (change,) for key, change in changes.items()}, is_news=bool(unjudged_classes))

    def hold_down(self, seconds: float) -> None:
        """Change the hold-down, in seconds, after which cards recover."""
        self.hold_down_s = seconds
        for known in self.known.values():
            known.health = replace(known.health, hold_down_s=seconds)
        self._hold_downs_until_s = float("-inf")
        self._apply({})

    def unhealthy(self) -> Unhealthy:
        """Return the IDs of the unhealthy cards by class."""
        found: dict[str, list[str]] = {}
        for (kind, card), known in self.known.items():
            if not known.healthy:
                found.setdefault(kind, []).append(card)
        return found

    def of(self, kind: str, names: Iterable[str] | None = None) -> list[CardKey]:
        """Return the cards of a class, or those among them that have one of *names*."""
        wanted = None if names is None else frozenset(names)
        return [
            key
            for key, known in self.known.items()
            if key[0] == kind and (wanted is None or not wanted.isdisjoint({key[1], *known.seen.names}))
        ]

    def stop(self) -> None:
        """Cancel the timer for the next recovery."""
        if self._timer is not None:
            self._timer.cancel()

    def _new(self, key: CardKey, seen: DetectedCard) -> CardState:
        health = new(self.clock(), hold_down_s=self.hold_down_s)
        return CardState(health, seen, seen.nodes, is_unjudged=key[0] in self._judged_classes)

    def _apply(self, changes: Mapping[CardKey, tuple[Change, ...]], *, is_news: bool = False) -> None:
        now_s = self.clock()
        for key, known in self.known.items():
            before = known.health
            known.health = step(before, now_s, *changes.get(key, ()))
            known.reason = known.health.reason or known.reason
            if before.healthy != known.health.healthy:
                is_news = True
                self._report_change(key, known)
        self._schedule_recovery()
        if is_news:
            self.changed()

    def _report_change(self, key: CardKey, known: CardState) -> None:
        kind, card = key
        if known.health.healthy:
            self.log.info("a card is healthy again", **{"class": kind, "card": card, "was": known.reason})
        else:
            known.unhealthy_since_s = self.now()
            self.log.warning("a card is unhealthy", **{"class": kind, "card": card, "reason": known.reason})
        self.health_changed(key, known)

    def _schedule_recovery(self) -> None:
        """Set a timer for the next recovery of a card."""
        self.stop()
        due = [at_s for at_s in self._hold_down_ends() if at_s > self._hold_downs_until_s]
        if due:
            delay_s = max(min(due) - self.clock(), 0)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._recover)

    def _recover(self) -> None:
        """Let cards recover whose hold-down is over, or have their driver asked."""
        self._hold_downs_until_s = now_s = self.clock()
        self._apply({})
        if any(at_s <= now_s for at_s in self._hold_down_ends()):
            self.query()

    def _hold_down_ends(self) -> Iterator[float]:
        return (at_s for known in self.known.values() if (at_s := known.health.recovers_at_s) is not None)


def _changes_of_existing(known: CardState, seen: DetectedCard) -> tuple[Change, ...]:
    """Return the changes of a card that exists."""
    known.seen, known.gone_s = seen, None
    known.health = replace(known.health, queried_s=seen.queried_s)
    known.nodes |= seen.nodes
    missing = sorted(known.nodes - seen.nodes)
    described = call_failed(DESCRIPTION, seen.problem) if seen.problem else call_works(DESCRIPTION)
    return (ended(MISSING), described, *map(node_back, sorted(seen.nodes)), *map(node_vanished, missing))


def _changes_of_missing(known: CardState, now_s: float) -> tuple[Change, ...]:
    """Return the changes of a card that does not exist."""
    known.gone_s = now_s if known.gone_s is None else known.gone_s
    return (began(MISSING, "it no longer exists"),)


def _is_old(known: CardState, now_s: float) -> bool:
    return known.gone_s is not None and now_s - known.gone_s > MISSING_KEPT_S
