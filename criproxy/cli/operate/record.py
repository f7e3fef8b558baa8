"""``criproxy record``: records the kubelet's requests on this node as a trace that ``simulate`` can replay."""

import os
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click

from criproxy.cli.client import ask, control_socket_option
from criproxy.cli.options import SIZE, PathOption, duration
from criproxy.cli.repeated_output import handling
from criproxy.errors import CriproxyError, UsageError

STDOUT = Path("-")


@click.command(short_help="Record the kubelet's requests on this node, for `simulate --load`.")
@click.argument("file", type=PathOption(), metavar="FILE")
@click.option("--for", "duration_s", type=duration(), metavar="DURATION", help="Stop after this time, such as 10m.")
@click.option("--max-size", type=SIZE, default="64Mi", show_default=True, help="Stop before FILE exceeds this size.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@control_socket_option
def command(*, file: Path, duration_s: float | None, max_size: int, force: bool, control_socket: str) -> None:
    """Write the containers of this node to FILE, then every pod and container that starts, changes or ends.

    If FILE is -, the command writes to standard output. A trace contains what placement depends on: names, QoS class,
    sizes, labels, and annotations for policies. It contains no commands, environments, mounts or images, and no values
    of labels or annotations whose keys suggest a secret. docs/simulate.md explains the format. Without --for, the
    command records until Ctrl-C.

    Exit status: 0 recorded, 1 there is nothing to record or the daemon ended the recording, 2 a usage error.
    """
    with _opened(file, force=force) as out:
        trace = Trace(out, control_socket, max_size)
        ended = trace.record(None if duration_s is None else time.monotonic() + duration_s)
    if ended:
        raise CriproxyError(f"{trace.summary()}; it ended early: {ended}")
    click.echo(trace.summary(), err=True)


@dataclass(slots=True)
class Trace:
    """A trace that is being written."""

    out: IO[str]
    control_socket: str
    max_bytes: int
    lines: int = 0
    size_bytes: int = 0
    interrupted: bool = False

    def summary(self) -> str:
        """Return how much has been recorded."""
        from criproxy.model.text.amounts import format_bytes

        return f"recorded {max(0, self.lines - 1)} events, {format_bytes(self.size_bytes)}"

    def record(self, until_s: float | None) -> str:
        """Write until *until_s* or Ctrl-C; return why the daemon or the size limit ended the trace before.

        Raises:
            CriproxyError: there is no daemon, or nothing to record.
        """
        answer = ask(self.control_socket, "record")
        if self.out is not sys.stdout and stat.S_ISREG(os.fstat(self.out.fileno()).st_mode):
            self.out.truncate(0)  # only now that there is something to replace it
        # Ctrl-C ends the trace between two answers: an exception during a write would cause a second write.
        interrupted = {signal.SIGINT: lambda *_: setattr(self, "interrupted", True)}
        try:
            with _watched(self), handling(interrupted):
                ended = self._follow(answer, until_s)
            last = self._next_answer(answer["recording"], end=True)
        except CriproxyError as error:  # the file keeps what has been recorded
            return str(error)
        return ended or self._keep(last["lines"])

    def _follow(self, answer: dict[str, Any], until_s: float | None) -> str:
        name = answer["recording"]
        while not (ended := self._keep(answer["lines"]) or str(answer["ended"])):
            if self.interrupted or (until_s is not None and time.monotonic() >= until_s):
                break
            answer = self._next_answer(name)
        return ended

    def _next_answer(self, name: str, *, end: bool = False) -> dict[str, Any]:
        taken = {"recording": name, "taken": self.lines, "end": end}
        answer: dict[str, Any] = ask(self.control_socket, "record", taken)
        return answer

    def _keep(self, lines: list[str]) -> str:
        """Write *lines*; return why the trace ends, if it does."""
        for line in lines:
            if self.size_bytes + len(line) + 1 > self.max_bytes:
                return f"the next event would make it larger than {self.max_bytes} bytes (--max-size)"
            self.out.write(f"{line}\n")
            self.lines += 1
            self.size_bytes += len(line) + 1
        self.out.flush()
        return ""


@contextmanager
def _opened(file: Path, *, force: bool) -> Iterator[IO[str]]:
    """Open *file* for writing, unreadable for others: names of pods may be confidential."""
    if file == STDOUT:
        if sys.__stdout__ is None:
            raise UsageError("standard output is closed: there is nowhere to write to")
        yield sys.stdout
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (0 if force else os.O_EXCL)
    is_new = not os.path.lexists(file)
    try:
        descriptor = os.open(file, flags, 0o600)
    except FileExistsError:
        raise UsageError(f"{file} already exists: --force replaces it") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            yield out
    finally:
        with suppress(OSError):  # another program may have removed it
            if is_new and not file.stat().st_size:
                file.unlink()  # so that the next recording does not need --force


@contextmanager
def _watched(trace: Trace) -> Iterator[None]:
    """Show the progress on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(
        console=Console(stderr=True),
        transient=True,
        get_renderable=lambda: Text(f"{trace.summary()}; press Ctrl-C to stop"),
    ):
        yield
