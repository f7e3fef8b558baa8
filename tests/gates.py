"""Gates at which threads wait in tests; `tests/conftest.py` opens them when a test ends, `World` when it fails.

A thread that waits for ever outlives its test: the event loop cannot be closed before it ends, nor can pytest exit.
"""

import threading
from weakref import WeakSet

_gates = WeakSet["Gate"]()


class Gate(threading.Event):
    """Holds up the threads that `wait` until it is set, or until the test has ended or failed."""

    def __init__(self) -> None:
        super().__init__()
        _gates.add(self)


def open_all() -> None:
    """Let every thread go on."""
    for gate in tuple(_gates):
        gate.set()
