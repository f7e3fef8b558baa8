"""Offers the existing cards according to the files: again after each change of files, cards or their health."""

from collections.abc import Callable

from criproxy.deviceplugin.cards.card_offers import Pins
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.configuration.configuration import Loaded
from criproxy.deviceplugin.nvidia.preference import FreeCpus
from criproxy.deviceplugin.resources.plugin_manager import PluginManager
from criproxy.deviceplugin.resources.resource_builder import Served, Unhealthy, build_resources
from criproxy.process.logger import Log


class Publisher:
    """What is offered at this moment.

    Args:
        loaded: The configuration.
        plugins: Offer the resources to the kubelet.
        unhealthy: Returns the cards that do not work.
        free_cpus: Helps to choose among cards.
        log: Gets one line for each problem, and for each change of the number of cards.
    """

    def __init__(
        self, loaded: Loaded, plugins: PluginManager, unhealthy: Callable[[], Unhealthy], free_cpus: FreeCpus, log: Log
    ) -> None:
        self.loaded = loaded
        self.inventory = Inventory()
        self.served = Served()
        self._plugins = plugins
        self._unhealthy = unhealthy
        self._free_cpus = free_cpus
        self._log = log
        self._pins = Pins()
        self._logged: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}

    def publish(self) -> None:
        """Offer what exists now."""
        self.served = build_resources(
            self.loaded, self.inventory, self._unhealthy(), free_cpus=self._free_cpus, pins=self._pins
        )
        self._plugins.publish(self.served.resources)
        self._log_changes()

    def use(self, loaded: Loaded, inventory: Inventory) -> None:
        """Offer cards according to *loaded* from now on."""
        self.loaded, self.inventory, self._pins = loaded, inventory, Pins()
        self.publish()

    def _log_changes(self) -> None:
        wrong = (*self.inventory.problems, *self.served.warnings)
        for text in wrong:
            if text not in self._logged:
                self._log.warning("cards may be missing", reason=text)
        self._logged = frozenset(wrong)
        counts = dict.fromkeys((kind.name for kind in self.loaded.classes), 0)
        for resource in self.served.resources.values():
            counts[resource.kind] += len({each.card for each in resource.devices.values()})
        for name, count in counts.items():
            if self._counts.get(name) != count:
                event = "cards are offered" if count else "there is no card of this class to offer"
                self._log.info(event, **{"class": name, "cards": count})
        self._counts = counts
