"""Sets up logging: structlog for our own lines, and records of the standard library's loggers passed to it.

An event is a constant sentence; everything that varies is a key. Lines go to standard error: with a
priority for the journal, as JSON, or readable. Import this module before `structlog` where start time
matters: see `_import_structlog`.
"""

import atexit
import json
import logging
import os
import re
import select
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from types import ModuleType
from typing import Any

from criproxy.model.text.bounded import bounded_text

_CHUNK_BYTES = 4096
"""A pipe that polls as writable takes this much (PIPE_BUF) without blocking."""


class LineWriter:
    """Writes lines to a file descriptor; lines that its reader does not read are buffered, then dropped and counted.

    A stalled journal or a container runtime that does not read our pipe must not delay a call of the kubelet.
    """

    def __init__(self, fd: int, *, limit_bytes: int = 1 << 20) -> None:
        self._fd = fd
        self._limit_bytes = limit_bytes
        self._pending = bytearray()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self.dropped_lines = 0
        """Lines lost since the start."""

    def write(self, line: str) -> None:
        """Write *line* (without a newline), or buffer it for the next call."""
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        if len(self._pending) + len(data) > self._limit_bytes:
            self.flush()
        if len(self._pending) + len(data) > self._limit_bytes:
            self.dropped_lines += 1
            return
        self._pending += data
        self.flush()

    def flush(self, timeout_s: float = 0.0) -> None:
        """Write as much of the buffer as the reader accepts; wait *timeout_s* for each chunk."""
        while self._pending and self._writable(timeout_s):
            try:
                written = os.write(self._fd, self._pending[:_CHUNK_BYTES])
            except BlockingIOError:
                return  # it stays in the buffer
            except OSError:  # a file on a full disk, or a reader that has just gone
                self.dropped_lines += self._pending.count(b"\n")
                self._pending.clear()
                return
            del self._pending[:written]

    def _writable(self, timeout_s: float) -> bool:
        """Whether the descriptor is writable; False if the reader is gone, which cannot be reported and is ignored."""
        events = self._poll.poll(timeout_s * 1000)
        return bool(events) and not events[0][1] & (select.POLLERR | select.POLLHUP | select.POLLNVAL)


def _import_structlog() -> ModuleType:
    """Import structlog without rich, which it would load (40 ms) for tracebacks that we do not print."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        import structlog

        return structlog
    sys.modules["rich"] = None  # type: ignore[assignment]  # makes Python's import fail
    try:
        import structlog
    finally:
        del sys.modules["rich"]
    return structlog


structlog = _import_structlog()

FORMATS = ("auto", "console", "journal", "json")
LEVELS = ("debug", "info", "warning", "error")

_PRIORITY = {"debug": 7, "info": 6, "warning": 4, "error": 3, "exception": 3, "critical": 2}
_PLAIN = re.compile(r"[\w./:@%+,~-]+", re.ASCII)
_MAX_VALUE_CHARS = 16_384
"""The longest value; also the limit of a traced message."""
_MAX_RENDERED_CHARS = 32_768
"""The longest rendered value with all its parts."""
_OUR_KEYS = frozenset(("level", "logger", "event", "exception"))
_COLORS = ("\x1b[1m", "\x1b[2m", {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}, "\x1b[0m")
"""For a terminal: the event, what is less important, the levels, and the end of each."""
_NO_COLORS: tuple[str, str, dict[str, str], str] = ("", "", {}, "")

UNTOLD = "a log line could not be written"

EventDict = dict[str, Any]


class _Logger:
    """The target of structlog: one method per level, all the same, and the logger's name."""

    def __init__(self, name: str, write: Callable[[str], None]) -> None:
        self.name = name
        self.debug = self.info = self.warning = self.error = self.critical = self.exception = self.msg = write


class _ToStructlog(logging.Handler):
    """Passes records of the standard library's loggers (asyncio, aiohttp, ours in `wire`) to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger(record.name)
        try:
            text = record.getMessage()
        except Exception as error:  # noqa: BLE001 (a line of a library must not fail a call)
            text = f"{UNTOLD}: {error!r}"
        logger.log(record.levelno, text, exc_info=record.exc_info)


def setup(log_format: str = "auto", level: str = "info", fd: int = 2) -> LineWriter:
    """Configure logging for this process and return the writer, which `atexit` flushes.

    Args:
        log_format: one of `FORMATS`; ``auto`` is ``journal`` if *fd* is the journal's stream, else ``console``.
        level: one of `LEVELS`; lines below it cost next to nothing.
        fd: the file descriptor for the lines.
    """
    writer, log_format = LineWriter(fd), chosen(log_format, fd)
    number = getattr(logging, level.upper())
    console = partial(_render_console, *(_COLORS if os.isatty(fd) else _NO_COLORS))
    render = {"journal": _render_journal, "json": _render_json}.get(log_format, console)
    structlog.configure(
        processors=[_completed, structlog.processors.format_exc_info, render],
        wrapper_class=_careful(structlog.make_filtering_bound_logger(number), writer, log_format),
        logger_factory=lambda *args: _Logger(args[0] if args else "criproxy", writer.write),
        cache_logger_on_first_use=True,
    )
    # Libraries log too much below warnings: aiohttp has a line per request.
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[_ToStructlog()], force=True)
    logging.getLogger("criproxy").setLevel(number)
    atexit.register(writer.flush, 1.0)
    return writer


def _careful(logger: Any, writer: LineWriter, log_format: str) -> type:  # noqa: ANN401 (a class that structlog made)
    """Return a subclass of *logger* that never raises: a line that cannot be written is replaced by an error."""

    class Careful(logger):  # type: ignore[misc]  # structlog makes it
        def _proxy_to_logger(self, method_name: str, event: str | None = None, **keys: Any) -> Any:  # noqa: ANN401
            try:
                return super()._proxy_to_logger(method_name, event, **keys)
            except Exception as error:  # noqa: BLE001 (no error of logging may fail a call)
                with suppress(Exception):
                    _tell_failure(writer, log_format, str(event), error)
                return None

    return Careful


def _tell_failure(writer: LineWriter, log_format: str, event: str, error: Exception) -> None:
    values = {"level": "error", "event": UNTOLD, "line": event, "reason": f"{type(error).__name__}: {error}"}
    if log_format == "json":
        writer.write(json.dumps(values))
    else:
        prefix = "<3>" if log_format == "journal" else ""
        writer.write(f"{prefix}{UNTOLD} line={render_value(event)} reason={render_value(values['reason'])}")


def is_journal(fd: int, environ: "os._Environ[str] | dict[str, str]" = os.environ) -> bool:
    """Whether *fd* is the stream to the journal that systemd names in JOURNAL_STREAM (``DEVICE:INODE``)."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    if not (device.isdigit() and inode.isdigit()):
        return False
    stat = os.fstat(fd)
    return (stat.st_dev, stat.st_ino) == (int(device), int(inode))


def chosen(log_format: str, fd: int = 2) -> str:
    """Return the format to use for *fd* if *log_format* is ``auto``; otherwise *log_format*."""
    if log_format != "auto":
        return log_format
    return "journal" if is_journal(fd) else "console"


def _completed(logger: _Logger, method: str, event: EventDict) -> EventDict:
    """Add the level and the logger's name, and cut long values: names and values of tenants are unbounded."""
    event.setdefault("logger", logger.name)
    event["level"] = "error" if method == "exception" else method
    for key, value in event.items():
        if isinstance(value, str) and len(value) > _MAX_VALUE_CHARS:
            event[key] = bounded_text(value, _MAX_VALUE_CHARS)
    return event


def _timestamp() -> str:
    return datetime.now(tz=UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _render_json(_logger: _Logger, _method: str, event: EventDict) -> str:
    return _to_json({**event, "timestamp": _timestamp()})


def _render_console(
    bold: str, dim: str, marks: Mapping[str, str], end: str, _logger: _Logger, _method: str, event: EventDict
) -> str:
    """Return the line for people; only a traceback has lines of its own."""
    level = event["level"]
    text, name = (_printable(str(event.get(key, ""))).replace("\n", "\\n") for key in ("event", "logger"))
    head = f"{dim}{_timestamp()}{end} [{marks.get(level, '')}{level:9}{end}] {bold}{text:30}{end} [{dim}{name}{end}]"
    exception = str(event.get("exception") or "")
    return f"{head} {_pairs(event)}".rstrip() + (f"\n{_printable(exception)}" if exception else "")


def _pairs(event: EventDict) -> str:
    return " ".join([f"{key}={render_value(value)}" for key, value in event.items() if key not in _OUR_KEYS])


def _render_journal(_logger: _Logger, method: str, event: EventDict) -> str:
    """Return ``<6>event key=value …``; the lines of a traceback follow with the same priority, for the journal."""
    prefix = f"<{_PRIORITY.get(method, 6)}>"
    lines = [_printable(f"{event.get('event', '')} {_pairs(event)}".strip().replace("\n", "\\n"))]
    if exception := str(event.get("exception") or ""):
        lines += _printable(exception).split("\n")
    return "\n".join(prefix + line for line in lines)


def render_value(value: object) -> str:
    """Render *value* for a line: bare if it is a plain word, else as JSON, so that no value can forge a line."""
    if isinstance(value, str) and len(value) <= _MAX_VALUE_CHARS and _PLAIN.fullmatch(value):
        return value
    if type(value) is int:  # most numbers; JSON's encoder takes ten times as long
        return str(value)
    return bounded_text(_to_json(value), _MAX_RENDERED_CHARS)


_encode = json.JSONEncoder(default=str, ensure_ascii=False).encode


def _to_json(value: object) -> str:
    return _printable(_encode(value))


def _printable(text: str) -> str:
    """Escape what is not shown, except line breaks; JSON leaves bidirectional controls and those above 0x7F alone."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)
