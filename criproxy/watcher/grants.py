"""What the daemon says that containers have been given, asked anew when a container turns up that is not known yet."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from criproxy.devices.plan import STRENGTHS, OverQuota
from criproxy.errors import CriproxyError
from criproxy.model.plain import from_plain
from criproxy.observe.logger import Log
from criproxy.usage.quota import Key
from criproxy.usage.values import Grant, Process, Quantity
from criproxy.watcher.daemon import Daemon

REFRESH_S = 10.0
"""So often it is asked though nobody is new: containers end, and the policy file changes."""
PAUSE_S = 0.5
"""Between two questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncident:
    """A container that is over its quota, as the daemon has stored it."""

    container_id: str
    device_class: str
    card: str
    quantity: str
    used: int = 0
    """When it was reported last, in MiB or percent."""
    allowed: int = 0
    action: str = ""
    pid: int = 0
    start_ticks: int = 0
    """The process that was to be killed."""
    waits: bool = False
    """Whether the daemon has not acted since its restart, and is to be told whether it still is so."""

    @property
    def key(self) -> Key:
        """The quota that it is about."""
        quantity: Quantity = "cores" if self.quantity == "cores" else "memory"
        return Key(self.container_id, self.card, quantity)

    @property
    def done(self) -> OverQuota:
        """What the daemon did about it; all there is where it says nothing that is known here."""
        return next((each for each in STRENGTHS if each == self.action), STRENGTHS[-1])

    @property
    def target(self) -> Process | None:
        """The process that was to be killed; None where none was."""
        is_one = self.action == "kill-process" and self.pid > 0 and self.start_ticks > 0
        return Process(pid=self.pid, start_ticks=self.start_ticks) if is_one else None


@dataclass(frozen=True, slots=True)
class Granted:
    """One answer of the daemon."""

    by_card: Mapping[tuple[str, str], tuple[Grant, ...]] = field(default_factory=dict)
    """What containers have of a card, by its class and id."""
    containers: frozenset[str] = frozenset()
    """All of them."""
    incidents: tuple[OpenIncident, ...] = ()
    """Those that are not over; empty where a daemon does not say it."""


@dataclass(slots=True, repr=False)
class Grants:
    """Knows what containers have been given.

    Args:
        daemon: is asked.
        log: is told once of an answer that cannot be understood.
    """

    daemon: Daemon
    log: Log
    refresh_s: float = REFRESH_S
    pause_s: float = PAUSE_S
    granted: Granted | None = None
    """The last answer; None: there was none yet, and nobody can be judged."""
    _asked_for: frozenset[str] = frozenset()
    """Containers that the last answer did not have: it is no use to ask again for their sake."""
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _said: str = ""

    def see(self, containers: Iterable[str]) -> None:
        """Ask soon if one of these is new."""
        known = self._asked_for if self.granted is None else self.granted.containers | self._asked_for
        new = frozenset(containers) - known
        if new:
            self._asked_for |= new
            self._wanted.set()

    async def run(self) -> None:
        """Keep it up to date for ever."""
        while True:
            self._wanted.clear()
            await self._ask()
            await asyncio.sleep(self.pause_s)
            try:
                async with asyncio.timeout(self.refresh_s):
                    await self._wanted.wait()
            except TimeoutError:
                self._asked_for = frozenset()

    async def _ask(self) -> None:
        try:
            answer = await self.daemon.ask("device-grants", {})
            self.granted = granted_in(answer)
            self._said = ""
        except CriproxyError:
            self._asked_for = frozenset()  # what is new stays new until there is an answer
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            if str(error) != self._said:
                self._said = str(error)
                self.log.warning("the daemon's answer about containers is invalid", reason=str(error))


def granted_in(answer: Any) -> Granted:  # noqa: ANN401 - JSON
    """The answer as values.

    Raises:
        LookupError, ValueError, TypeError, AttributeError: it is none.
    """
    grants = [from_plain(Grant, each) for each in answer["containers"]]
    incidents = [from_plain(OpenIncident, each) for each in answer.get("incidents", [])]
    by_card: dict[tuple[str, str], list[Grant]] = {}
    for grant in grants:
        for card in grant.cards:
            by_card.setdefault((grant.kind, card), []).append(grant)
    return Granted(
        by_card={key: tuple(_of_card(each, key[1]) for each in found) for key, found in by_card.items()},
        containers=frozenset(grant.container_id for grant in grants),
        incidents=tuple(incidents),
    )


def _of_card(grant: Grant, card: str) -> Grant:
    return grant if grant.cards == (card,) else replace(grant, cards=(card,))
