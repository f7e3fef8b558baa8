"""Lets signals end a command by an exception, so that what it has begun is taken back."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def leaving_on(*signals: signal.Signals) -> Iterator[None]:
    """Exit with 128 plus the number when one of *signals* arrives; no change outside the main thread.

    Signals that this process has ignored from its start stay ignored: under nohup, nothing ends with the terminal.
    """

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    former = {number: signal.signal(number, leave) for number in heeded}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
