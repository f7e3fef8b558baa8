"""Connects what notices that cards fail with their health: NVML's events, health commands, and what is not there."""

from collections.abc import Callable, Mapping

from criproxy.deviceplugin.cards_health import CardsHealth
from criproxy.deviceplugin.configuration import Loaded
from criproxy.deviceplugin.events_watch import EventsWatch
from criproxy.deviceplugin.health_commands import HealthCommands
from criproxy.deviceplugin.inventory import Inventory
from criproxy.deviceplugin.nvml_events import Registered
from criproxy.deviceplugin.offering import platform_for
from criproxy.deviceplugin.seen import cards_of
from criproxy.devices.builtin import NVIDIA
from criproxy.devices.health import (
    call_failed,
    call_works,
    command_healthy,
    command_unhealthy,
    happened,
    xid_event,
)
from criproxy.devices.offers import Offered, Offers, card_of
from criproxy.nvidia.xids import Event, XidFilter, is_watched, made_unhealthy, places_of, unwatched
from criproxy.observe.logger import Log
from criproxy.observe.tasks import Tasks

MOST_UNKNOWN = 100
"""So many names that health commands use for no card are logged."""
_CALL = "nvmlDeviceRegisterEvents"


class Watching:
    """What is noticed of cards.

    Args:
        health: gets it.
        events: the program that tells of NVML's events.
        xids: which errors count.
        offers: what is offered of NVIDIA's cards at this moment.
        log: is told once of what does not fit.
    """

    def __init__(
        self, health: CardsHealth, events: tuple[str, ...], xids: XidFilter, offers: Callable[[], Offers], log: Log
    ) -> None:
        self.health = health
        self.commands = HealthCommands(self._judged, log)
        self.events = EventsWatch(events, self._registered, self._happened, log)
        self._xids = xids
        self._offers = offers
        self._log = log
        self._inventory = Inventory()
        self._unknown: set[str] = set()

    def start(self, tasks: Tasks) -> None:
        """Begin to watch."""
        tasks.forever("health commands", self.commands.run)
        if self._xids.watching:
            tasks.forever("events of cards", self.events.run)

    def use(self, loaded: Loaded) -> None:
        """Watch as *loaded* says."""
        plan = loaded.plan
        self.health.hold_down(plan.hold_down_s)
        self.health.expect(each.kind for each in plan.health_commands)
        self.commands.use(plan.health_commands)

    def found(self, loaded: Loaded, inventory: Inventory) -> None:
        """Note which cards there are."""
        self._inventory = inventory
        self.health.see(cards_of(loaded.plan, inventory), (each.kind.name for each in loaded.plan.advertised))
        self.commands.soon(self.health.awaited())
        platform = platform_for(loaded.configuration.nvidia, inventory)
        watched = loaded.plan.nvidia is not None and is_watched(platform) and bool(inventory.driver_version)
        self.events.use([gpu.uuid for gpu in inventory.gpus] if watched else [])

    def _registered(self, found: Registered) -> None:
        """It is known of which GPUs NVML tells events."""
        bad = set(map(card_of, unwatched(self._nvidia(), places_of(self._inventory.gpus), found.failed)))
        changes = dict.fromkeys(self.health.of(NVIDIA.name), call_works(_CALL))
        for key in changes:
            if key[1] in bad:
                changes[key] = call_failed(_CALL, found.failed.get(key[1], "its events cannot be watched"))
        self.health.note(changes)

    def _happened(self, event: Event) -> None:
        places = places_of(self._inventory.gpus)
        cards = set(map(card_of, made_unhealthy(event, self._nvidia(), places, self._xids)))
        change = happened("events", "NVML failed to report events") if event.kind == "failed" else xid_event(event.xid)
        self.health.note({(NVIDIA.name, card): change for card in cards})

    def _nvidia(self) -> list[Offered]:
        """All that is offered, and all cards: what is offered in no way at the moment can fail, too."""
        offered = [each for cards in self._offers().values() for each in cards.values()]
        return [*offered, *(Offered(id=card, index="") for _, card in self.health.of(NVIDIA.name))]

    def _judged(self, kind: str, verdict: Mapping[str, str] | str) -> None:
        """A health command of a class has spoken."""
        if isinstance(verdict, str):
            self.health.judge(kind, dict.fromkeys(self.health.of(kind), command_unhealthy(verdict)))
            return
        changes = dict.fromkeys(self.health.of(kind), command_healthy())
        for name, reason in verdict.items():
            keys = self.health.of(kind, [name])
            changes |= dict.fromkeys(keys, command_unhealthy(reason))
            if not keys:
                self._tell_unknown(kind, name)
        self.health.judge(kind, changes)

    def _tell_unknown(self, kind: str, name: str) -> None:
        if name not in self._unknown and len(self._unknown) < MOST_UNKNOWN:
            self._unknown.add(name)
            self._log.warning("a health command named a card that does not exist", **{"class": kind, "card": name})
