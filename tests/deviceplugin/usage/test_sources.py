"""Programs and files that say who uses how much, whatever becomes of them."""

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from criproxy.deviceplugin.usage.sources import FileSource, ProgramSource, silent_s
from criproxy.devices.usage.values import Reading
from criproxy.host.patience import Patience
from criproxy.process.tasks import Backoff
from tests.deviceplugin.news import News, running

LIMIT_S = 60.0
LINE = '{"processes": [{"pid": 7, "card": "npu0", "memory_mib": 900}]}'


class Taken(News):
    """Readings as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.readings: list[Reading] = []

    def took(self, reading: Reading) -> None:
        """Keep one."""
        self.readings.append(reading)
        self.wake()

    def problems(self) -> list[str]:
        """Those of all so far."""
        return [each.problem for each in self.readings if each.problem]


@asynccontextmanager
async def following(text: str, silent: float = LIMIT_S) -> AsyncIterator[Taken]:
    """Follow a shell script."""
    taken = Taken()
    source = ProgramSource("npu", ("/bin/sh", "-c", text), "/bin/npu-usage", taken.took, silent, Backoff(0.01, 0.05))
    async with running(source.run()):
        yield taken


def runs(pid: int) -> bool:
    """Whether a process runs; one that nobody waits for may stay as a name."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


async def test_each_line_is_a_reading() -> None:
    """It is of the time when it came."""
    before_s = time.monotonic()
    async with following(f"""echo '{LINE}'; echo '{{"processes": []}}'; sleep 1000""") as taken:
        await taken.until(lambda: len(taken.readings) == 2)

    first, second = taken.readings
    assert (first.kind, first.processes[0].process.pid, first.processes[0].memory_mib) == ("npu", 7, 900)
    assert before_s <= first.at_s <= second.at_s <= time.monotonic()


async def test_a_line_that_waited_is_of_the_time_when_it_was_taken() -> None:
    """Several lines that are read at once are not of one moment."""
    now_s = time.monotonic()
    lines = "".join(f"""echo '{{"processes": [], "monotonic_s": {now_s - ago_s}}}'; """ for ago_s in (5.0, 3.0))
    async with following(f"{lines} sleep 1000") as taken:
        await taken.until(lambda: len(taken.readings) == 2)

    assert [each.at_s for each in taken.readings] == [now_s - 5.0, now_s - 3.0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("exit 3", "/bin/npu-usage has exited", id="ends"),
        pytest.param("""echo '{"problem": "no driver"}'""", "no driver", id="says-why"),
        pytest.param("echo npu0 900", "/bin/npu-usage printed a line that is not JSON", id="no-json"),
        pytest.param(
            "echo '[]'; sleep 1000", "printed an invalid reading: a reading must be an object", id="no-reading"
        ),
        pytest.param(
            """echo '{"processes": [{"pid": 0}]}'; sleep 1000""", "processes[0].card is missing", id="no-card"
        ),
        pytest.param("head -c 200000 /dev/zero | tr '\\0' [; echo; sleep 1000", "is not JSON", id="too-deep"),
    ],
)
async def test_a_program_that_fails_is_started_again(text: str, problem: str, tmp_path: Path) -> None:
    """Each end is a reading with its reason, by which nobody is judged."""
    count = tmp_path / "count"
    async with following(f"echo $$ >> {count}; {text}") as taken:
        await taken.until(lambda: len(taken.problems()) >= 3)

    assert problem in taken.problems()[0]
    for pid in map(int, count.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_one_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    """What it has started does not stay behind, and the next one is heard."""
    child = tmp_path / "child"
    hangs = f"sleep 1000 & echo $! > {child}.new; mv {child}.new {child}; wait"  # again, where it was ended before
    text = f"if [ ! -e {child} ]; then {hangs}; fi; echo '{LINE}'; sleep 1000"
    async with following(text, silent=0.5) as taken:
        await taken.until(lambda: any(each.processes for each in taken.readings))

    assert taken.problems()[0] == "/bin/npu-usage has printed nothing for 0.5 s"
    assert not runs(int(child.read_text()))


def test_silence_is_measured_by_the_period() -> None:
    """A program with long periods may be silent for longer."""
    assert (silent_s(1.0), silent_s(60.0)) == (10.0, 300.0)


def write(path: Path, text: str, age_s: float = 0.0) -> None:
    """Replace a file at once, as it has to be."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.utime(new, (time.time() - age_s,) * 2)
    new.rename(path)


def source(path: Path, period_s: float = 1.0) -> FileSource:
    """Return the readings of a file, one for each period."""
    return FileSource("npu", path, lambda _: None, period_s, Patience())


async def read(file: FileSource) -> Reading:
    """Return what it says; there is something new."""
    found = await file.read()
    assert found is not None
    return found


async def test_a_file_is_read_once_for_each_time_that_it_is_written(tmp_path: Path) -> None:
    """A reading is of the time when it was written."""
    path = tmp_path / "npu.json"
    file = source(path, LIMIT_S)
    write(path, LINE, age_s=2.0)

    first = await read(file)
    assert first.processes[0].process.pid == 7
    assert 1.9 < time.monotonic() - first.at_s < LIMIT_S
    assert await file.read() is None
    write(path, LINE)
    assert await file.read() is not None


MANY = json.dumps({"processes": [{"pid": pid, "card": "npu0", "memory_mib": 900} for pid in range(1, 40_001)]})
"""More processes than have room in 1 MiB."""


async def test_many_processes_are_a_reading(tmp_path: Path) -> None:
    """Who starts very many of them switches no quota off: neither that of a file, nor that of a program."""
    path = tmp_path / "npu.json"
    write(path, MANY + "\n")
    assert len((await read(source(path))).processes) == 40_000

    async with following(f"cat {path}; sleep 1000") as taken:
        await taken.until(lambda: len(taken.readings) == 1)
    assert len(taken.readings[0].processes) == 40_000


@pytest.mark.parametrize(
    ("text", "age_s", "problem"),
    [
        pytest.param(LINE, 3.5, "is older than 3 s; it must be rewritten in every period", id="old"),
        pytest.param(LINE, -60.0, "has a time in the future", id="future"),
        pytest.param("{", 0.0, "is not JSON", id="no-json"),
        pytest.param(
            '{"processes": [], "cards": 3}', 0.0, "is not a valid reading: cards must be a valid list", id="no-reading"
        ),
        pytest.param(" " * 17_000_000, 0.0, "has more than 16777216 bytes", id="too-large"),
    ],
)
async def test_what_a_file_does_not_say_is_a_problem(tmp_path: Path, text: str, age_s: float, problem: str) -> None:
    """Nobody is judged by it."""
    path = tmp_path / "npu.json"
    write(path, text, age_s)

    assert problem in (await read(source(path))).problem


async def test_an_old_file_is_the_same_problem_every_time(tmp_path: Path) -> None:
    """So the log has it once, however old the file gets."""
    path = tmp_path / "npu.json"
    problems = []
    for age_s in (4.0, 5.0):
        write(path, LINE, age_s)
        problems.append((await read(source(path))).problem)

    assert problems[0] == problems[1]


async def test_a_file_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    """As is one that is a folder; later it may be there."""
    path = tmp_path / "npu.json"
    file = source(path)
    assert (await read(file)).problem == f"{path} cannot be read: No such file or directory"
    write(path, json.dumps({"processes": []}))
    assert not (await read(file)).problem
