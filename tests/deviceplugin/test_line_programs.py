"""Programs that print one value a line."""

import os
from pathlib import Path

import pytest

from criproxy.deviceplugin.line_programs import BadLine, LineProgram

LIMIT_S = 60.0


def program(script: str, silent_s: float = LIMIT_S) -> LineProgram:
    """Return a shell script as such a program."""
    return LineProgram(
        ("/bin/sh", "-c", script), "the script", "the script is silent", silent_s, "an overlong line", longest_bytes=100
    )


def take(line: bytes) -> str:
    """Return the problem that a line reports after a "!"; a "?" is a bad line."""
    if line.startswith(b"?"):
        raise BadLine("a question")
    return line.decode().strip().removeprefix("!") if line.startswith(b"!") else ""


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        pytest.param("echo fine", "the script has exited", id="exits"),
        pytest.param("echo '!no driver'", "no driver", id="reports-a-problem"),
        pytest.param("echo '!no driver'; echo fine", "no driver", id="reports-a-problem-before-its-end"),
        pytest.param("echo '?'; sleep 1000", "the script printed a question", id="bad-line"),
        pytest.param("head -c 1000 /dev/zero; sleep 1000", "the script printed an overlong line: ", id="overlong-line"),
    ],
)
async def test_the_problem_says_why_no_more_lines_come(script: str, problem: str) -> None:
    """A problem that the program itself reports explains its exit."""
    source = program(script)
    found = await source.follow(take)
    await source.child.end()

    assert found.startswith(problem)


async def test_a_program_that_prints_nothing_is_silent() -> None:
    """The time counts from its last line."""
    source = program("echo first; echo fine; sleep 1000")
    lines: list[bytes] = []

    def keep(line: bytes) -> str:
        source.silent_s = 0.2  # the program has begun, however long that took
        lines.append(line)
        return ""

    found = await source.follow(keep)
    await source.child.end()

    assert (lines, found) == ([b"first\n", b"fine\n"], "the script is silent for 0.2 s")


async def test_the_first_line_may_take_longer(tmp_path: Path) -> None:
    """The program is not ended meanwhile, and its silence is told."""
    os.mkfifo(go := tmp_path / "go")
    source = program(f"cat {go}; exit 3")
    source.silent_s, source.first_s = 0.01, LIMIT_S
    told, lines = list[str](), list[bytes]()

    def late(problem: str) -> None:
        told.append(problem)
        go.write_text("fine\n")

    def keep(line: bytes) -> str:
        source.silent_s = LIMIT_S
        lines.append(line)
        return ""

    source.late = late
    found = await source.follow(keep)
    await source.child.end()

    assert (told, lines, found) == (["the script is silent for 0.01 s"], [b"fine\n"], "the script has exited")


async def test_a_program_that_cannot_be_run_is_a_problem(tmp_path: Path) -> None:
    """The reason is that of the system."""
    source = LineProgram((str(tmp_path / "none"),), "the script", "", LIMIT_S, "")

    assert await source.follow(take) == f"the script cannot be run: {os.strerror(2)}"
