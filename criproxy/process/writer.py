"""Writes log lines without blocking the event loop."""

import os
import select

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
