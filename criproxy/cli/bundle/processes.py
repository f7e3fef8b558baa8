"""Runs the parts of a bundle, a few at a time, each in a process that is killed when its time is over."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

from criproxy.cli.bundle.parts import Part
from criproxy.errors import reason_of
from criproxy.process.children.tether import python, tethered

AT_ONCE = 6
_GONE_S = 1.0
"""How long to wait for a process that was killed; one that the kernel does not let go is left alone."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a part's process has written."""

    part: Part
    output: str
    errors: str
    status: int | None
    """None: it was killed since its time was over."""


@dataclass(slots=True)
class Processes:
    """The processes that run now."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to that of this process."""
    _running: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _stopped: bool = False

    def run(self, parts: Sequence[Part]) -> Iterator[Outcome]:
        """Yield the outcome of each part, in order; an exception of the caller ends all processes."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                yield from pool.map(self._run, parts)
            except BaseException:
                self._stop()
                raise

    def _run(self, part: Part) -> Outcome:
        try:
            process = self._started(part)
        except OSError as error:
            return Outcome(part, "", f"it cannot be run: {reason_of(error)}", 1)
        output, errors, in_time = _communicate(process, part.limit_s)
        with self._lock:
            self._running.pop(process.pid)
        status = process.returncode if in_time else None
        return Outcome(part, output.decode(errors="replace"), errors.decode(errors="replace"), status)

    def _started(self, part: Part) -> "subprocess.Popen[bytes]":
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        with self._lock:
            if self._stopped:
                raise InterruptedError("stopped")
            process = subprocess.Popen(
                tethered(python(*part.words)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",  # ours may be on a disk that hangs
                env={**environment, **self.environment},
                start_new_session=True,
            )
            self._running[process.pid] = process
        return process

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running.values():
                _kill(process)


def _communicate(process: "subprocess.Popen[bytes]", limit_s: float) -> tuple[bytes, bytes, bool]:
    """Return what *process* writes within *limit_s*, and whether it ended by then."""
    try:
        return *process.communicate(timeout=limit_s), True
    except subprocess.TimeoutExpired:
        _kill(process)
    try:
        return *process.communicate(timeout=_GONE_S), False
    except subprocess.TimeoutExpired as expired:
        return expired.stdout or b"", expired.stderr or b"", False


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill *process* and the programs that it runs, which are in its process group."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
