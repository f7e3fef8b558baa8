"""Offers the existing cards according to the files: again after each change of files, cards or their health."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from criproxy.deviceplugin.cards.card_offers import Pins
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.configuration.configuration import Loaded
from criproxy.deviceplugin.nvidia.preference import FreeCpus
from criproxy.deviceplugin.resources.plugin_manager import PluginManager
from criproxy.deviceplugin.resources.resource_builder import Served, Unhealthy, build_resources
from criproxy.process.logger import Log


@dataclass(slots=True, repr=False)
class Publisher:
    """What is offered at this moment.

    Args:
        loaded: The configuration.
        plugins: Offer the resources to the kubelet.
        unhealthy: Returns the cards that do not work.
        free_cpus: Helps to choose among cards.
        log: Gets one line for each problem, and for each change of the number of cards.
    """

    loaded: Loaded
    plugins: PluginManager
    unhealthy: Callable[[], Unhealthy]
    free_cpus: FreeCpus
    log: Log
    inventory: Inventory = field(default_factory=Inventory)
    served: Served = field(default_factory=Served)
    _pins: Pins = field(default_factory=Pins)
    _logged: frozenset[str] = frozenset()
    _counts: Mapping[str, int] = field(default_factory=dict)

    def publish(self) -> None:
        """Offer what exists now."""
        self.served = build_resources(
            self.loaded, self.inventory, self.unhealthy(), free_cpus=self.free_cpus, pins=self._pins
        )
        self.plugins.publish(self.served.resources)
        self._log_changes()

    def use(self, loaded: Loaded, inventory: Inventory) -> None:
        """Offer cards according to *loaded* from now on."""
        self.loaded, self.inventory, self._pins = loaded, inventory, Pins()
        self.publish()

    def _log_changes(self) -> None:
        wrong = (*self.inventory.problems, *self.served.warnings)
        for text in wrong:
            if text not in self._logged:
                self.log.warning("cards may be missing", reason=text)
        self._logged = frozenset(wrong)
        counts = dict.fromkeys((kind.name for kind in self.loaded.classes), 0)
        for resource in self.served.resources.values():
            counts[resource.kind] += len({each.card for each in resource.devices.values()})
        for name, count in counts.items():
            if self._counts.get(name) != count:
                event = "cards are offered" if count else "there is no card of this class to offer"
                self.log.info(event, **{"class": name, "cards": count})
        self._counts = counts
