"""Offers what the files say of the cards that there are: again with each change of either, and of the cards' health."""

from collections.abc import Callable

from criproxy.deviceplugin.answers import FreeCpus
from criproxy.deviceplugin.configuration import Loaded
from criproxy.deviceplugin.inventory import Inventory
from criproxy.deviceplugin.pins import Pins
from criproxy.deviceplugin.plugins import Plugins
from criproxy.deviceplugin.resources import Served, Unhealthy, resources
from criproxy.observe.logger import Log


class Publisher:
    """What is offered at this moment.

    Args:
        loaded: what the files say.
        plugins: tell the kubelet.
        unhealthy: cards that do not work.
        free_cpus: for the choice among cards.
        log: is told once of each thing that is wrong, and of the number of cards.
    """

    def __init__(
        self,
        loaded: Loaded,
        plugins: Plugins,
        unhealthy: Callable[[], Unhealthy],
        free_cpus: FreeCpus,
        log: Log,
    ) -> None:
        self.loaded = loaded
        self.inventory = Inventory()
        self.served = Served()
        self._plugins = plugins
        self._unhealthy = unhealthy
        self._free_cpus = free_cpus
        self._log = log
        self._pins = Pins()
        self._said: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}

    def check(self, loaded: Loaded, inventory: Inventory) -> None:
        """See whether *loaded* and the cards of *inventory* go together.

        Raises:
            ResourceError: they do not.
        """
        resources(loaded.configuration, inventory, strict=True)

    def publish(self) -> None:
        """Offer what is there now."""
        config, unhealthy = self.loaded.configuration, self._unhealthy()
        self.served = resources(
            config,
            self.inventory,
            unhealthy,
            free_cpus=self._free_cpus,
            pins=self._pins,
        )
        self._plugins.publish(self.served.resources)
        self._tell()

    def use(self, loaded: Loaded, inventory: Inventory) -> None:
        """Offer as *loaded* says from now on."""
        self.loaded, self.inventory, self._pins = loaded, inventory, Pins()
        self.publish()

    def _tell(self) -> None:
        wrong = frozenset((*self.inventory.problems, *self.served.warnings))
        for text in (*self.inventory.problems, *self.served.warnings):
            if text not in self._said:
                self._log.warning("cards may be missing", reason=text)
        self._said = wrong
        counts = dict.fromkeys((each.kind.name for each in self.loaded.plan.advertised), 0)
        for resource, name in self.served.classes.items():
            counts[name] += len({each.card for each in self.served.offers[resource].values()})
        for name, count in counts.items():
            if self._counts.get(name) != count:
                event = "cards are offered" if count else "there is no card of this class to offer"
                self._log.info(event, **{"class": name, "cards": count})
        self._counts = counts
