"""The cards that containers have: requested from the daemon regularly, and when an unknown container appears."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from criproxy.deviceplugin.daemon_client.asking import DaemonClient
from criproxy.deviceplugin.usage.quota_verdicts import Key, Limits, limits_of
from criproxy.devices.plugin.plan import STRENGTHS, OverQuota
from criproxy.devices.usage.values import QUANTITIES, Grant, Process, Quantity
from criproxy.errors import CriproxyError
from criproxy.model.text.plain import from_plain
from criproxy.process.logger import Log, LogOnce
from criproxy.process.tasks import wait_at_most

REFRESH_S = 10.0
"""The interval of requests without an unknown container: containers end, and the policy file changes."""
PAUSE_S = 0.5
"""The minimum pause between two requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncident:
    """A container that is over its quota, as the daemon has stored it."""

    container_id: str
    device_class: str
    card: str
    quantity: str
    used: int = 0
    """In the last report, in MiB or percent."""
    allowed: int = 0
    action: str = ""
    pid: int = 0
    start_ticks: int = 0
    """The start of the process that was to be killed."""
    waits: bool = False
    """Whether the daemon has not acted since its restart, and waits for a report of whether this is still so."""

    @property
    def key(self) -> Key:
        """The quota that the container exceeds."""
        quantity: Quantity = "cores" if self.quantity == "cores" else "memory"
        return Key(self.container_id, self.card, quantity)

    @property
    def done(self) -> OverQuota:
        """The action that the daemon took; the strongest one if the daemon reports one that is unknown here."""
        return next((each for each in STRENGTHS if each == self.action), STRENGTHS[-1])

    @property
    def target(self) -> Process | None:
        """The process that was to be killed, if any."""
        is_kill = self.action == "kill-process" and self.pid > 0 and self.start_ticks > 0
        return Process(pid=self.pid, start_ticks=self.start_ticks) if is_kill else None


@dataclass(frozen=True, slots=True)
class Granted:
    """One answer of the daemon."""

    limits: Limits = field(default_factory=dict)
    containers: frozenset[str] = frozenset()
    """The ids of all containers that have cards."""
    incidents: tuple[OpenIncident, ...] = ()
    """The incidents that have not ended; empty if the daemon does not report them."""


@dataclass(slots=True, repr=False)
class Grants:
    """Keeps the grants of all containers up to date.

    Args:
        daemon: answers the requests.
        log: gets each reason why an answer is invalid once.
        refresh_s: the interval of requests.
        pause_s: the minimum pause between two requests.
    """

    daemon: DaemonClient
    log: Log
    refresh_s: float = REFRESH_S
    pause_s: float = PAUSE_S
    granted: Granted | None = None
    """The last answer; None: there has been none yet, and no container can be judged."""
    _asked_for: frozenset[str] = frozenset()
    """Containers that the last answer lacked: it is no use to repeat the request because of them."""
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _answer: Any = None
    """What `granted` was parsed from."""
    _problems: LogOnce = field(init=False)

    def __post_init__(self) -> None:
        self._problems = LogOnce(self.log)

    def require(self, containers: Iterable[str]) -> None:
        """Send a request soon if the grants of one of these containers are unknown."""
        known = self._asked_for if self.granted is None else self.granted.containers | self._asked_for
        new = frozenset(containers) - known
        if new:
            self._asked_for |= new
            self._wanted.set()

    async def run(self) -> None:
        """Keep the grants up to date."""
        while True:
            self._wanted.clear()
            await self._request()
            await asyncio.sleep(self.pause_s)
            if not await wait_at_most(self.refresh_s, self._wanted.wait()):
                self._asked_for = frozenset()

    async def _request(self) -> None:
        try:
            answer = await self.daemon.ask("device-grants", {})
            # One that repeats the last answer is another answer, but need not be parsed.
            is_same = answer == self._answer
            self.granted = replace(self.granted) if self.granted and is_same else parse_granted(answer)
            self._answer = answer
            self._problems.clear()
        except CriproxyError:
            self._asked_for = frozenset()  # an unknown container stays unknown until there is an answer
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            self._problems.warning("the daemon's answer about containers is invalid", str(error))


def parse_granted(answer: Any) -> Granted:  # noqa: ANN401 - JSON
    """Parse an answer of the daemon.

    Raises:
        LookupError, ValueError, TypeError, AttributeError: the answer is invalid.
    """
    grants = [from_plain(Grant, each) for each in answer["containers"]]
    reported = [from_plain(OpenIncident, each) for each in answer.get("incidents", [])]
    incidents = [each for each in reported if each.quantity in QUANTITIES]  # a newer daemon may know others
    return Granted(
        limits=limits_of(grants),
        containers=frozenset(grant.container_id for grant in grants),
        incidents=tuple(incidents),
    )
