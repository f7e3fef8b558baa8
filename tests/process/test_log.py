"""Log lines as the journal, programs and people get them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from criproxy.process import log
from criproxy.process.log import LineWriter
from criproxy.process.logger import LogOnce
from tests.node.world import RecordingLog

SCRIPT = """
import logging, sys
from criproxy.process import log
log.setup(sys.argv[1], sys.argv[2])
logger = log.structlog.get_logger("criproxy.test")
logger.debug("fine detail")
logger.info("container placed", container="a b", cpus="0-3,5", forged="x\\n<0>root logged in", n=3, nothing=None)
try:
    {}["missing"]
except KeyError:
    logger.exception("it failed", key="k")
logging.getLogger("asyncio").warning("slow callback %s", "x")
logging.getLogger("asyncio").info("chatter")
print("rich" in sys.modules, file=sys.stdout)
"""


def run(script: str, *arguments: str) -> tuple[str, str]:
    """What a process writes to standard error and to standard output."""
    command, environ = [sys.executable, "-c", script, *arguments], {"PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(command, capture_output=True, check=True, env=environ)
    return done.stderr.decode(), done.stdout.decode()


def lines(log_format: str, level: str = "info") -> list[str]:
    """What a process that logs in *log_format* writes to standard error."""
    said, output = run(SCRIPT, log_format, level)
    assert output == "False\n", "rich was loaded"
    return said.splitlines()


def test_the_journal_gets_a_priority_on_each_line() -> None:
    """Each line, those of a traceback included, starts with its priority, and a value cannot start a new line."""
    found = lines("journal")

    assert found[0] == '<6>container placed container="a b" cpus=0-3,5 forged="x\\n<0>root logged in" n=3 nothing=null'
    assert found[1] == "<3>it failed key=k"
    assert all(line.startswith("<3>") for line in found[2:-1])
    assert found[-1] == "<4>slow callback x"


def test_json_is_one_object_per_line() -> None:
    """Programs get every key, with level, logger and time."""
    first, failure, library = (json.loads(line) for line in lines("json"))

    assert (first["event"], first["level"], first["logger"]) == ("container placed", "info", "criproxy.test")
    assert first["forged"] == "x\n<0>root logged in"
    assert "KeyError: 'missing'" in failure["exception"]
    assert (library["logger"], library["level"]) == ("asyncio", "warning")
    assert first["timestamp"].endswith("Z")


def test_the_console_shows_values_without_line_breaks() -> None:
    """People see event, keys and traceback; a value with a line break stays on its line."""
    found = lines("console")

    assert "container placed" in found[0]
    assert 'container="a b" cpus=0-3,5 forged="x\\n<0>root logged in"' in found[0]
    assert "\x1b" not in found[0], "no colours where there is no terminal"
    assert "KeyError: 'missing'" in found


@pytest.mark.parametrize(("level", "expected"), [("debug", 4), ("error", 1)])
def test_the_level_hides_what_is_below(level: str, expected: int) -> None:
    """Only events of the level and above are written."""
    assert expected == len(lines("json", level))


def test_the_journal_is_recognised_by_its_stream(tmp_path: Path) -> None:
    """JOURNAL_STREAM must name the very file that standard error is."""
    with (tmp_path / "stream").open("w") as stream:
        stat = os.fstat(stream.fileno())
        right = {"JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino}"}
        wrong = {"JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino + 1}"}

        assert log.is_journal(stream.fileno(), right)
        assert not log.is_journal(stream.fileno(), wrong)
        assert not log.is_journal(stream.fileno(), {})
        assert not log.is_journal(stream.fileno(), {"JOURNAL_STREAM": "nonsense"})


UNTELLABLE = """
import sys
from criproxy.process import log
log.setup(sys.argv[1], "info")
class Untellable:
    def __str__(self): raise ValueError("planted")
    __repr__ = __str__
logger = log.structlog.get_logger("criproxy.test")
logger.info("first", value=Untellable())
import logging
logging.getLogger("asyncio").error("slow %d", "x")
logger.info("last", value=1)
try:
    raise OSError(Untellable())
except OSError as error:
    logger.error("with a traceback", exc_info=error)
"""


@pytest.mark.parametrize("log_format", ["journal", "json", "console"])
def test_a_line_that_cannot_be_told_fails_nobody(log_format: str) -> None:
    """In its place is one that says so; the next ones come."""
    said, _ = run(UNTELLABLE, log_format)

    assert all(text in said for text in ("a log line could not be written", "planted", "first", "last"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("\x1b[2J", '"\\u001b[2J"', id="escape"),
        pytest.param("\x9b2J", '"\\u009b2J"', id="c1"),
        pytest.param("a\u202eb", '"a\\u202eb"', id="right-to-left"),
        pytest.param("größe", '"größe"', id="letters"),
        pytest.param(["\u200b"], '["\\u200b"]', id="list"),
    ],
)
def test_a_value_is_text_and_nothing_else(value: object, expected: str) -> None:
    """A terminal on which a log is read acts on nothing that a tenant has written."""
    assert log.render_value(value) == expected


HOSTILE = """
import logging, sys
from criproxy.process import log
log.setup(sys.argv[1], "info")
text = "größe \\x1b[2J\\x9b2J a\\u202eb \\x85c\\u2028d \\U000e0041"
logger = log.structlog.get_logger("criproxy.test")
logger.info("placed", container=text, parts=[text])
logging.getLogger("asyncio").warning("slow %s", text)
try:
    raise ValueError(text)
except ValueError:
    logger.exception("it failed")
"""


@pytest.mark.parametrize("log_format", ["journal", "json", "console"])
def test_no_part_of_a_line_acts_on_a_terminal(log_format: str) -> None:
    """Neither values nor the text of a library or a traceback have characters that are not shown; JSON stays JSON."""
    text, _ = run(HOSTILE, log_format)

    assert [each for each in text if not each.isprintable() and each != "\n"] == []
    assert text.count("größe") == 4 + text.count("raise ValueError(")
    assert "\\u009b" in text
    if log_format == "json":
        placed = json.loads(text.splitlines()[0])
        assert placed["container"] == placed["parts"][0] == "größe \x1b[2J\x9b2J a\u202eb \x85c\u2028d \U000e0041"


def test_a_line_has_an_end() -> None:
    """However long a name is, and however many there are."""
    assert len(log.render_value("x" * 1_000_000)) < 40_000
    assert len(log.render_value(["y" * 1000] * 1000)) < 40_000
    cut = log._completed(
        log._Logger("x", print), "info", {"event": "container placed", "container": "x" * 100_000, "n": 1}
    )
    assert len(cut["container"]) < 20_000
    assert cut["n"] == 1


# ---------------------------------------------------------------- a reader that does not read


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


# ---------------------------------------------------------------- warnings that repeat


def test_a_reason_is_logged_once_until_it_changes() -> None:
    """After `clear`, the same reason is logged again."""
    log = RecordingLog()
    problems = LogOnce(log)
    for reason in ("disk full", "disk full", "no disk", "disk full"):
        problems.warning("the file is not written", reason)
    problems.clear()
    problems.warning("the file is not written", "disk full")

    assert [keys["reason"] for _, keys in log.lines] == ["disk full", "no disk", "disk full", "disk full"]
