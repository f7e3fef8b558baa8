"""Asks the daemon in a thread of its own, one request after the other, so that the screen never waits for it."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from criproxy.api.views.top.cards import CardRow, card_rows
from criproxy.api.views.top.snapshot import Snapshot, snapshot
from criproxy.cli.daemon.client import NoDaemon, ask
from criproxy.cli.daemon.daemon_queries import DaemonQueries
from criproxy.errors import CriproxyError

Values = Mapping[str, Any]
ANSWER_S = 30.0
"""A daemon that does not answer for so long is asked again."""
SLOW_S = 2.0
"""After so long, the screen says that the daemon has not answered."""
CARDS_EVERY_S = 5.0
"""The pause between two looks at the cards, for which the daemon reads files of the machine."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the daemon has answered."""

    status: Snapshot | None = None
    cards: tuple[CardRow, ...] = ()
    problem: str = ""
    """Why there is nothing newer."""


class Asker:
    """Asks when it is told to, unless it is still waiting for an answer."""

    def __init__(
        self, places: DaemonQueries, wake: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._places, self._wake, self._clock = places, wake, clock
        self._wanted = threading.Event()
        self._asked_s: float | None = None
        self._cards_s = -CARDS_EVERY_S
        self._told = Told()
        self._thread = threading.Thread(target=self._run, name="asker", daemon=True)  # may hang in a request at the end

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask(self) -> None:
        """Ask as soon as the last request has been answered."""
        self._wanted.set()

    @property
    def told(self) -> Told:
        """The last answer; it says so if the next one takes long."""
        asked_s, told = self._asked_s, self._told
        waits_s = 0.0 if asked_s is None else self._clock() - asked_s
        if waits_s < SLOW_S:
            return told
        return replace(told, problem=f"the daemon has not answered for {waits_s:.0f} s; {_what_is_shown(told.status)}")

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            self._asked_s = self._clock()
            self._told = self.answer()
            self._asked_s = None
            self._wake()

    def answer(self) -> Told:
        """Ask now, and wait for the answer."""
        told = self._told
        try:
            if told.status is None:
                status, stored = _apart(snapshot(self._places.status()))  # what was stored is better than nothing
            else:
                status, stored = snapshot(ask(self._places.control_socket, "status", {}, ANSWER_S, tells=False)), ""
            return Told(status, self._cards(told.cards) if status.source == "daemon" else (), stored)
        except CriproxyError as error:
            return replace(told, problem=f"{error}; {_what_is_shown(told.status)}")
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            return replace(told, problem=f"the daemon's answer cannot be read: {error!r}; does it run another version?")

    def _cards(self, before: tuple[CardRow, ...]) -> tuple[CardRow, ...]:
        """The cards and their use; those *before* where it is too early to look again, or nobody tells."""
        now_s = self._clock()
        if now_s - self._cards_s < CARDS_EVERY_S:
            return before
        self._cards_s = now_s
        self._asked_s = now_s
        try:
            devices = ask(self._places.control_socket, "devices", {}, ANSWER_S, tells=False)
            self._asked_s = self._clock()
            usage = ask(self._places.control_socket, "usage", {"history": False}, ANSWER_S, tells=False)
        except NoDaemon:
            raise
        except CriproxyError:  # an earlier daemon, which does not know one of them
            return before
        return tuple(card_rows(devices, usage))


def answer_once(places: DaemonQueries) -> Told:
    """What the daemon answers now; it never raises because of what it says."""
    return Asker(places, lambda: None).answer()


def _apart(status: Snapshot) -> tuple[Snapshot, str]:
    """A first answer, and why it is not the daemon's: its first notice says so, and would be shown twice."""
    if status.source == "daemon" or not status.notices:
        return status, ""
    (_, why), *others = status.notices
    return replace(status, notices=others), why


def _what_is_shown(status: Snapshot | None) -> str:
    return "trying again" if status is None else f"containers as of {status.time[11:19]}Z"
