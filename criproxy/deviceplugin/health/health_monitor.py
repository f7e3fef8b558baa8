"""Connects the sources of failures with the health of cards: NVML events, health commands, and missing cards."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from time import monotonic

from criproxy.deviceplugin.cards.detected_cards import CardKey, cards_of
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.configuration.configuration import Loaded
from criproxy.deviceplugin.health import health as card_health
from criproxy.deviceplugin.health.cards_health import CardsHealth
from criproxy.deviceplugin.health.events_watch import EventsWatch
from criproxy.deviceplugin.health.health_commands import HealthCommands
from criproxy.deviceplugin.health.nvml_events import Registered
from criproxy.deviceplugin.nvidia.xids import Event, XidFilter, is_watched, made_unhealthy, places_of
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.process.logger import Log
from criproxy.process.tasks import Backoff, Tasks

FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 600.0
"""Between two replacements, while new processes contradict each other, too."""
MOST_UNKNOWN = 100
"""Limit for logging names of unknown cards from health commands."""
_CALL = "nvmlDeviceRegisterEvents"
_LOOK = "look"
"""Key of the cause that a GPU does not work, according to the program that watches it."""


class HealthMonitor:
    """Monitors the cards.

    Args:
        health: Receives all observations.
        events: The program that reports NVML events.
        xids: Selects the errors that count.
        rescan: Looks at the cards again.
        log: Gets one line for each unknown card that a health command names.
    """

    def __init__(
        self, health: CardsHealth, events: tuple[str, ...], xids: XidFilter, rescan: Callable[[], None], log: Log
    ) -> None:
        self.health = health
        self.commands = HealthCommands(self._on_verdict, log)
        self.events = EventsWatch(
            events, self._on_registered, self._on_event, log, on_mig=self._on_mig, on_cards=self._on_cards
        )
        self._xids = xids
        self._rescan = rescan
        self._log = log
        self._inventory = Inventory()
        self._registered: Registered | None = None
        """The GPUs whose events are watched; None: the program that watches them has not said it."""
        self._stale_view = StaleView()
        self._logged_missed: list[str] = []
        self._looked: tuple[set[str], ...] = ()
        """The GPUs that worked last, according to the inventory and to the program that watches them."""
        self._logged_names: set[str] = set()

    @property
    def events_problem(self) -> str:
        """Why no NVML events are received although they should be: before its first answer, nothing is watched."""
        found = self._inventory
        if self.events.problem or self._registered is None:
            return self.events.problem or (found.nvml_problem if found.pending and self._xids.watching else "")
        return f"NVML does not report the events of {', '.join(missed)}" if (missed := self._missed) else ""

    def start(self, tasks: Tasks) -> None:
        """Start the background tasks."""
        tasks.forever("health commands", self.commands.run)
        if self._xids.watching:
            tasks.forever("events of cards", self.events.run)

    def use(self, loaded: Loaded) -> None:
        """Monitor according to *loaded*."""
        plan = loaded.plan
        self.health.hold_down(plan.hold_down_s)
        self.health.expect_verdicts(each.kind for each in plan.health_commands)
        self.commands.use(plan.health_commands)

    def update_cards(self, loaded: Loaded, inventory: Inventory) -> None:
        """Update the set of existing cards."""
        self._inventory = inventory
        self.health.update_cards(cards_of(loaded.plan, inventory), (kind.name for kind in loaded.classes))
        self.commands.run_soon(self.health.unjudged_classes())
        has_events = loaded.plan.nvidia is not None and is_watched(inventory.platform_for(loaded.nvidia))
        watched = has_events and bool(inventory.driver_version)
        self.events.use([gpu.uuid for gpu in inventory.gpus] if watched else [])
        self._on_registered(self._registered if watched else None)

    def _on_registered(self, found: Registered | None) -> None:
        """Update the health of cards whose events NVML does not report, or does; an error about a GPU says neither."""
        self._registered = found
        if found is None:
            return
        places, changes = places_of(self._inventory.gpus), dict[CardKey, card_health.Change]()
        for key in self.health.of(NVIDIA.name):
            if (place := places.get(key[1])) is None:
                continue  # it no longer exists
            if place.gpu in found.failed:
                changes[key] = card_health.call_failed(_CALL, found.failed[place.gpu])
            elif place.gpu in found.settled:
                changes[key] = card_health.call_works(_CALL)
        self.health.apply(changes)

    def _on_event(self, event: Event) -> None:
        cards = [card for _, card in self.health.of(NVIDIA.name)]
        unhealthy = made_unhealthy(event, cards, places_of(self._inventory.gpus), self._xids)
        self.health.apply({(NVIDIA.name, card): card_health.xid_event(event.xid) for card in unhealthy})

    def _on_cards(self, faults: Mapping[str, str]) -> None:
        """Apply which GPUs work; where the inventory disagrees, a new process queries NVML."""
        changes = dict[CardKey, card_health.Change]()
        for key in self.health.of(NVIDIA.name):
            fault = faults.get(self.health.known[key].seen.parent or key[1])
            if fault is not None:
                changes[key] = card_health.began(_LOOK, f"NVML: {fault}") if fault else card_health.ended(_LOOK)
        self.health.apply(changes)
        if (missed := self._missed) != self._logged_missed:
            self._logged_missed = missed
            if missed:
                self._log.warning("NVML events are not received", gpus=missed, reason="NVML does not describe the GPUs")
        working = {gpu for gpu, fault in faults.items() if not fault}
        before, self._looked = self._looked, (self._working, working)
        if stale := self._stale_view.contradicted(faults, self._working, self._inventory.answered_s):
            self._log.info("a new process watches the GPUs: NVML is right about them only there", gpus=stale)
            self._looked = ()
            self.events.restart()
        elif self._working != working and self._looked != before:
            self._rescan()

    @property
    def _working(self) -> set[str]:
        """The GPUs that work according to the inventory."""
        return {gpu.uuid for gpu in self._inventory.gpus} - self._inventory.lost.keys()

    @property
    def _missed(self) -> list[str]:
        """The GPUs that work according to the inventory, and of which the program that watches them knows nothing."""
        found = self._registered
        return sorted(self._working - found.settled - found.failed.keys()) if found else []

    def _on_mig(self, modes: Mapping[str, bool]) -> None:
        """Look at the cards again if the inventory is wrong about which GPUs have MIG: no file shows it."""
        if any(modes.get(gpu.uuid, gpu.mig_enabled) != gpu.mig_enabled for gpu in self._inventory.gpus):
            self._rescan()

    def _on_verdict(self, kind: str, verdict: Mapping[str, str] | str) -> None:
        """Apply the verdict of the health command of a class."""
        if isinstance(verdict, str):
            self.health.apply_verdict(kind, dict.fromkeys(self.health.of(kind), card_health.command_unhealthy(verdict)))
            return
        changes = dict.fromkeys(self.health.of(kind), card_health.command_healthy())
        for name, reason in verdict.items():
            keys = self.health.of(kind, [name])
            changes |= dict.fromkeys(keys, card_health.command_unhealthy(reason))
            if not keys:
                self._log_unknown(kind, name)
        self.health.apply_verdict(kind, changes)

    def _log_unknown(self, kind: str, name: str) -> None:
        if name not in self._logged_names and len(self._logged_names) < MOST_UNKNOWN:
            self._logged_names.add(name)
            self._log.warning("a health command named a card that does not exist", **{"class": kind, "card": name})


@dataclass(slots=True)
class StaleView:
    """Compares what the program says with the inventory, for which each query of NVML is a new process.

    After a reset of a GPU, NVML may call it lost for as long as the process runs that has found it lost.

    Args:
        clock: the clock of `Inventory.answered_s`.
    """

    clock: Callable[[], float] = monotonic
    _since_s: dict[str, float] = field(default_factory=dict)
    """By GPU, since when this run of the program has said that it does not work."""
    _backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S))
    _next_s: float = float("-inf")
    """The earliest time of the next replacement."""

    def contradicted(
        self, faults: Mapping[str, str], working: Collection[str], answered_s: float | None
    ) -> tuple[str, ...]:
        """Return the GPUs because of which the program is to be replaced now.

        Args:
            faults: what the program says now: why GPUs do not work, by UUID; empty if they do.
            working: the GPUs that work according to the inventory.
            answered_s: when the query of the inventory began; None: NVML has not answered it.
        """
        now_s = self.clock()
        self._since_s = {gpu: self._since_s.get(gpu, now_s) for gpu, fault in faults.items() if fault}
        if not self._since_s:
            self._backoff.reset()
        found = tuple(gpu for gpu, since_s in self._since_s.items() if gpu in working and since_s < (answered_s or 0.0))
        if not found or now_s < self._next_s:
            return ()
        self._next_s, self._since_s = now_s + self._backoff.pause_s(), {}
        return found
