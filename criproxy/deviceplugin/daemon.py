"""What the device plugin asks the daemon while the kubelet waits."""

from collections.abc import Mapping
from dataclasses import dataclass

from criproxy.errors import CriproxyError
from criproxy.observe.asking import ask

FREE_CPUS_S = 0.05
"""How long the choice of cards may wait for the daemon."""


@dataclass(frozen=True, slots=True)
class FreeCpus:
    """How much CPU the daemon has free on each NUMA node, for the choice among cards."""

    path: str
    timeout_s: float = FREE_CPUS_S

    def __call__(self) -> Mapping[int, int]:
        """Thousandths of a CPU by NUMA node; empty where the daemon does not say it in time: blocks so long."""
        try:
            found = ask(self.path, "free-cpus", {}, self.timeout_s)
            free = found["free_milli"]
            return {int(node): int(milli) for node, milli in free.items()} if free else {}
        except (CriproxyError, LookupError, ValueError, TypeError, AttributeError):
            return {}
