"""Open-loop load on a Redis server: requests are sent when they are due, whether or not earlier ones were answered.

    python -m lab.benefit.programs.load PORT RATE_PER_S SECONDS SEED AT_ONCE

Each latency counts from the moment when the request was due, so that a server that stalls is charged for all requests
that were due meanwhile (there is no "coordinated omission"). Prints JSON. Runs outside of containers, above everything
else: as clients on other machines would, it loses no time to the node's pods.
"""

import json
import math
import os
import random
import select
import socket
import sys
import time
from collections import deque
from contextlib import suppress

_CONNECTIONS = 32
_KEYS = 1000
_VALUE = b"x" * 1024
_ANSWER_BYTES = len(b"$1024\r\n") + len(_VALUE) + 2
_WARM_S = 1.0
_PATIENCE_S = 20.0
PERCENTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Connection:
    """One client: answers come in the order of its requests."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due: deque[float] = deque()
        self._received = 0

    def answered(self, now: float) -> list[float]:
        """Latencies of the answers that came."""
        self._received += len(self.socket.recv(1 << 20))
        whole, self._received = divmod(self._received, _ANSWER_BYTES)
        return [now - self.due.popleft() for _ in range(whole)]


def fill(port: int) -> None:
    """Give all keys their values."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answers:
        for key in range(_KEYS):
            connection.sendall(_command(b"SET", b"key:%d" % key, _VALUE))
            answers.readline()


def moments(rate_per_s: float, seconds: float, chance: random.Random, at_once: int = 1) -> list[float]:
    """When requests are due: independent users, so that gaps are exponential, each with *at_once* requests."""
    due, now = list[float](), 0.0
    while (now := now + chance.expovariate(rate_per_s / at_once)) < seconds:
        due += [now] * at_once
    return due


class Clients:
    """All connections, and what became of the requests so far; times in seconds from the beginning."""

    def __init__(self, port: int, due: list[float], chance: random.Random) -> None:
        self.latencies: list[float] = []
        self.late: list[float] = []
        """How much later than it was due each request was sent."""
        self._due = due
        self._connections = [Connection(port) for _ in range(_CONNECTIONS)]
        self._by_fd = {each.socket.fileno(): each for each in self._connections}
        self._requests = [_command(b"GET", b"key:%d" % chance.randrange(_KEYS)) for _ in range(256)]
        self._poll = select.epoll()
        for descriptor in self._by_fd:
            self._poll.register(descriptor, select.EPOLLIN)
        self._begun = time.perf_counter()

    def now(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._begun

    def send_due(self) -> None:
        """Send everything that is due by now."""
        now = self.now()
        while (sent := len(self.late)) < len(self._due) and self._due[sent] <= now:
            connection = self._connections[sent % _CONNECTIONS]
            connection.due.append(self._due[sent])
            connection.socket.sendall(self._requests[sent % len(self._requests)])
            self.late.append(self.now() - self._due[sent])

    def receive(self) -> None:
        """Take the answers that come before the next request is due.

        Raises:
            TimeoutError: none came long after the last request was due.
        """
        sent = len(self.late)
        wait_s = self._due[sent] - self.now() if sent < len(self._due) else 1.0
        # The descriptor of an epoll can be waited for with microseconds, its own wait only with milliseconds.
        if select.select([self._poll], [], [], max(0.0, wait_s))[0]:
            for descriptor, _ in self._poll.poll(0):
                self.latencies += self._by_fd[descriptor].answered(self.now())
        elif self.now() > self._due[-1] + _PATIENCE_S:
            raise TimeoutError(f"{len(self._due) - len(self.latencies)} requests had no answer")

    def close(self) -> None:
        """Close all connections."""
        self._poll.close()
        for each in self._connections:
            each.socket.close()


def drive(port: int, due: list[float], chance: random.Random) -> tuple[list[float], list[float]]:
    """Send a request at each moment; returns the latencies, and how late requests were sent, in seconds."""
    clients = Clients(port, due, chance)
    try:
        while len(clients.latencies) < len(due):
            clients.send_due()
            clients.receive()
        return clients.latencies, clients.late
    finally:
        clients.close()


def percentile(values: list[float], share: float) -> float:
    """The value that the *share* of all values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _go_first() -> str:
    """Run before all other processes, on the first CPU, which no container has alone."""
    with suppress(OSError):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        os.nice(-20)
        return "nice -20"
    return "SCHED_FIFO"


def main(port: int, rate_per_s: float, seconds: float, seed: int, at_once: int) -> None:
    """Warm up, measure, print."""
    fill(port)
    how = _go_first()
    chance = random.Random(seed)
    drive(port, moments(rate_per_s, min(_WARM_S, seconds), chance, at_once), chance)
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    latencies, late = drive(port, moments(rate_per_s, seconds, chance, at_once), chance)
    found = {name: 1000 * percentile(latencies, share) for name, share in PERCENTILES.items()}
    sent_late_ms = 1000 * percentile(late, PERCENTILES["p99_ms"])
    print(json.dumps({**found, "requests": len(latencies), "sent_late_p99_ms": sent_late_ms, "load_runs": how}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
