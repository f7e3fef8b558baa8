"""Reports to a daemon as the watcher does, while it is on: ``python -m lab.usage.reporter SOCKET PERIOD_S``.

The first line of its input has the containers and their cards. After that, ``on`` and ``off`` begin and end a time in
which each period has a report of the use of all cards, and one about a quota: in turn, a container is over it or within
it again. It answers each line with what it has reported so far.
"""

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from criproxy.deviceplugin.daemon_client.asking import ask

TIMEOUT_S = 10.0
GRANTS_EACH = 10
"""So many reports for one question of what containers have: the watcher asks every ten seconds."""
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
        self.incidents = 0
        """Containers over their quota that the daemon has stored so far."""

    def report(self) -> None:
        """All that the watcher says in one period; it asks what containers have in some of them only."""
        said = self.said()
        if self.turn % GRANTS_EACH:
            del said["device-grants"]
        for command, arguments in said.items():
            self.ask(command, arguments)
        self.incidents += 1 - self.turn % 2
        self.turn += 1

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


def _while_on(reporter: Reporter, period_s: float, off: threading.Event) -> None:
    """Report at once, and then in each period until it is off."""
    next_s = time.monotonic()
    while True:
        reporter.report()
        next_s += period_s
        if off.wait(max(next_s - time.monotonic(), 0)):
            return


def main() -> None:
    """Obey the lines of standard input until it ends."""
    reporter, period_s = Reporter(sys.argv[1], json.loads(sys.stdin.readline())), float(sys.argv[2])
    off, reporting = threading.Event(), None
    with ThreadPoolExecutor(1) as pool:
        for line in sys.stdin:
            if reporting is not None:
                off.set()
                reporting.result()
                off, reporting = threading.Event(), None
            if line.strip() == "on":
                reporting = pool.submit(_while_on, reporter, period_s, off)
            print(json.dumps([reporter.turn, reporter.incidents]), flush=True)


if __name__ == "__main__":
    main()
