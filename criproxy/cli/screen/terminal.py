"""The terminal of this process, taken and given back: keys one by one, a screen of its own, signals.

It is given back as it was whatever happens: an exception, SIGTERM, SIGHUP, and while the process is stopped by Ctrl-Z.
"""

import codecs
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

from criproxy.cli.screen.keys import is_begun, keys_in

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""Another screen, without a cursor; a line that is too long is cut and does not wrap."""
_LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
ESCAPE_S = 0.05
"""What is not sent so soon after an Escape does not belong to it."""
_ENDING = (signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None


@dataclass(frozen=True, slots=True)
class Woken:
    """Why a wait has ended."""

    keys: list[str] = field(default_factory=list)
    repaint: bool = False
    """The screen may have another size, or show something else."""
    closed: bool = False
    """Nobody can press keys any more."""


class Terminal:
    """Standard input and output, where both are terminals. A context manager."""

    def __init__(self) -> None:
        self._input, self._output = sys.stdin.fileno(), sys.stdout.fileno()
        self._before = termios.tcgetattr(self._input)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._wake_input, self._wake_output = os.pipe()
        self._old: dict[signal.Signals, Handler] = {}
        self._signals: set[int] = set()

    def __enter__(self) -> Self:
        for end in (self._wake_input, self._wake_output):
            os.set_blocking(end, False)
        try:
            self._handle_signals()
            self._take()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _handle_signals(self) -> None:
        for number in (*_ENDING, signal.SIGWINCH, signal.SIGTSTP):
            self._old[number] = signal.signal(number, self._end if number in _ENDING else self._note)

    def _end(self, number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one must not keep the terminal from being given back
        raise SystemExit(128 + number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals.add(number)
        self.wake()

    def wake(self) -> None:
        """End the present or the next wait; any thread may call this."""
        with suppress(BlockingIOError):  # so many wakings are pending already
            os.write(self._wake_output, b"\0")

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            columns, lines = os.get_terminal_size(self._output)
        except OSError:
            columns, lines = 0, 0
        return (columns or 80, lines or 24)

    def write(self, text: str) -> None:
        """Send *text*."""
        sent = memoryview(text.encode(errors="replace"))
        while sent:
            sent = sent[os.write(self._output, sent) :]

    def wait(self, timeout_s: float) -> Woken:
        """Wait until a key is pressed, the size has changed, `wake` was called, or *timeout_s* have passed."""
        ready, _, _ = select.select([self._input, self._wake_input], [], [], max(0.0, timeout_s))
        with suppress(BlockingIOError):
            while self._wake_input in ready and os.read(self._wake_input, 4096):
                pass
        noted, self._signals = self._signals, set()
        if signal.SIGTSTP in noted:
            self._stop()
        if self._input not in ready:
            return Woken(repaint=bool(noted))
        text = self._read()
        return Woken(keys_in(text or ""), bool(noted), text is None)

    def _read(self) -> str | None:
        """What was typed, with the rest of a sequence that has only begun; None: the terminal is closed."""
        text = ""
        while True:
            try:
                data = os.read(self._input, 4096)
            except OSError:  # it has hung up
                data = b""
            if not data:
                return text or None
            text += self._decoder.decode(data)
            if not is_begun(text) or not select.select([self._input], [], [], ESCAPE_S)[0]:
                return text

    def _stop(self) -> None:
        """Stop as Ctrl-Z does, with the terminal as it was, and take it again later."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def _take(self) -> None:
        tty.setcbreak(self._input)
        self.write(_ENTER)

    def _give_back(self) -> None:
        with suppress(OSError, termios.error):  # it may be gone
            self.write(_LEAVE)
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)
