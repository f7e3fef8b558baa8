"""Queries of the device plugin to the daemon while the kubelet waits."""

from collections.abc import Mapping
from dataclasses import dataclass

from criproxy.deviceplugin.daemon_client.asking import ask
from criproxy.errors import CriproxyError

FREE_CPUS_S = 0.05
"""How long choosing cards may wait for the daemon."""


@dataclass(frozen=True, slots=True)
class FreeCpus:
    """The free CPU of each NUMA node according to the daemon, for choosing cards."""

    path: str
    timeout_s: float = FREE_CPUS_S

    def __call__(self) -> Mapping[int, int]:
        """Return thousandths of a CPU by NUMA node; empty without an answer in time. Blocks for up to the timeout."""
        try:
            reply = ask(self.path, "free-cpus", {}, self.timeout_s)
            free = reply["free_milli"]
            return {int(node): int(milli) for node, milli in free.items()} if free else {}
        except (CriproxyError, LookupError, ValueError, TypeError, AttributeError):
            return {}
