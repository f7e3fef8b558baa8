"""Writes log lines; the event loop never waits for their reader."""

import os
import select

_CHUNK_BYTES = 4096
"""A pipe that polls as writable takes this much (PIPE_BUF) without blocking."""


class LineWriter:
    """Writes lines to a file descriptor; what its reader does not take is kept, then dropped and counted.

    A stalled journal or a container runtime that does not read our pipe must not hold up a call of the kubelet.
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
        """Write *line* (without its newline), or keep it for the next call."""
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        if len(self._pending) + len(data) > self._limit_bytes:
            self.flush()
        if len(self._pending) + len(data) > self._limit_bytes:
            self.dropped_lines += 1
            return
        self._pending += data
        self.flush()

    def flush(self, timeout_s: float = 0.0) -> None:
        """Write what is kept, as far as the reader takes it; wait *timeout_s* for each piece."""
        while self._pending and self._writable(timeout_s):
            try:
                written = os.write(self._fd, self._pending[:_CHUNK_BYTES])
            except BlockingIOError:
                return  # it is kept
            except OSError:  # a file on a full disk, or a reader that has just gone
                self.dropped_lines += self._pending.count(b"\n")
                self._pending.clear()
                return
            del self._pending[:written]

    def _writable(self, timeout_s: float) -> bool:
        """False also where the reader is gone: that cannot be reported, and is no reason to end."""
        events = self._poll.poll(timeout_s * 1000)
        return bool(events) and not events[0][1] & (select.POLLERR | select.POLLHUP | select.POLLNVAL)
