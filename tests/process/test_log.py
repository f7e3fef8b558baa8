"""Log lines as the journal, programs and people get them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from criproxy.process import log

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
    cut = log._cut(log._Logger("x", print), "info", {"event": "container placed", "container": "x" * 100_000, "n": 1})
    assert len(cut["container"]) < 20_000
    assert cut["n"] == 1
