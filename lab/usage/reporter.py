"""What the watcher says to a daemon: a report of the use of all cards, and one about a quota, in each period."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from criproxy.deviceplugin.daemon_client.asking import ask

TIMEOUT_S = 10.0
ALLOWED_MIB, OVER_MIB = 8192, 9000
_FIRST_S = 1_700_000_000.0


class Reporter:
    """What the watcher of a node says.

    Args:
        socket: the daemon's control socket.
        containers: their ids and cards.
    """

    def __init__(self, socket: str, containers: Sequence[tuple[str, str]]) -> None:
        self._socket = socket
        self._containers = containers
        self._cards = sorted({card for _, card in containers})
        self.turn = 0
        """Reports of use so far."""

    def said(self) -> dict[str, Mapping[str, Any]]:
        """The commands of one period, and their arguments."""
        return {"device-grants": {}, "device-usage": self._use(), "quota-incident": self._quota()}

    def ask(self, command: str, arguments: Mapping[str, Any]) -> None:
        """Ask the daemon; what is reported, it has to keep."""
        answer = ask(self._socket, command, arguments, TIMEOUT_S)
        if command == "quota-incident" and not answer["stored"]:
            raise ValueError(f"the daemon has not stored an incident: {answer}")

    def _use(self) -> Mapping[str, Any]:
        """Another use in each report, as of containers that work."""
        turn = self.turn
        totals = {"memory_mib": 40_000 + turn % 7, "total_mib": 81_920, "cores_percent": 40.0 + turn % 5}
        use = {"kind": "nvidia", "memory_mib": 4096 + turn % 7, "cores_percent": 5.0 + turn % 3}
        nvidia = {
            "kind": "nvidia",
            "source": "nvml",
            "cards": [{"card": card, **totals} for card in self._cards],
            "containers": [{"container_id": key, "card": card, **use} for key, card in self._containers],
        }
        return {"at_s": time.time(), "period_s": 1.0, "classes": [nvidia]}

    def _quota(self) -> Mapping[str, Any]:
        """One container after the other is over its quota, and within it again."""
        key, card = self._containers[self.turn // 2 % len(self._containers)]
        about = {"container_id": key, "device_class": "nvidia", "card": card, "quantity": "memory"}
        if self.turn % 2:
            return {**about, "over": False}
        amounts = {"used": OVER_MIB, "allowed": ALLOWED_MIB, "since_s": _FIRST_S + self.turn}
        return {**about, **amounts, "action": "annotate"}
