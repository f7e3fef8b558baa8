"""Log lines and a reader that does not read."""

import os
import time
from pathlib import Path

from criproxy.process.log import LineWriter

LIMIT_S = 60.0
"""Only who waits for the reader, which never reads, takes so long."""


def test_lines_arrive_in_order() -> None:
    """What is written is read, one line each."""
    reader, fd = os.pipe()
    writer = LineWriter(fd)

    writer.write("one")
    writer.write("zwö")
    os.close(fd)

    with os.fdopen(reader, "rb") as stream:
        assert stream.read() == "one\nzwö\n".encode()


def test_a_reader_that_does_not_read_holds_nobody_up() -> None:
    """Lines beyond the limit are dropped and counted; the caller goes on at once."""
    reader, fd = os.pipe()
    writer = LineWriter(fd, limit_bytes=10_000)
    begin = time.monotonic()

    for _ in range(2_000):
        writer.write("x" * 99)

    assert time.monotonic() - begin < LIMIT_S
    assert 2_000 - (65_536 + 10_000) // 100 <= writer.dropped_lines <= 2_000 - 65_536 // 100
    os.close(reader)
    os.close(fd)


def test_what_was_kept_follows_when_the_reader_reads() -> None:
    """Nothing is lost below the limit, and no line is torn."""
    reader, fd = os.pipe()
    writer = LineWriter(fd)
    for number in range(1_000):
        writer.write(f"{number:0100}")

    got = b""
    while len(got) < 101_000:
        got += os.read(reader, 1 << 20)
        writer.flush()

    assert ([int(line) for line in got.splitlines()], writer.dropped_lines) == (list(range(1_000)), 0)
    os.close(reader)
    os.close(fd)


def test_a_reader_that_is_gone_is_no_error() -> None:
    """The daemon outlives whoever read its log."""
    reader, fd = os.pipe()
    os.close(reader)
    writer = LineWriter(fd, limit_bytes=100)

    for _ in range(10):
        writer.write("x" * 50)

    assert writer.dropped_lines == 9
    os.close(fd)


def test_a_place_without_room_fails_nobody() -> None:
    """Standard error may be a file on a full disk: lines are lost and counted, and whoever writes goes on."""
    with Path("/dev/full").open("wb", buffering=0) as full:
        writer = LineWriter(full.fileno())

        writer.write("one")
        writer.write("two")
        writer.flush()

    assert writer.dropped_lines == 2
