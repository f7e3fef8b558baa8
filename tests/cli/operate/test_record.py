"""``criproxy record`` as users type it."""

import asyncio
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

from criproxy.api.recorder import Recorder
from criproxy.errors import UsageError
from criproxy.placement.events import ContainerStarted, PodCreated
from criproxy.simulate.loads import read_trace
from tests.asking import NAMED, criproxy, serving
from tests.node.world import World, sharer


@asynccontextmanager
async def recording(directory: Path) -> AsyncIterator[World]:
    """A node whose daemon answers ``record`` on a control socket in *directory*."""
    async with World(directory, settings=NAMED) as world, _serving(world, directory):
        yield world


def _serving(world: World, directory: Path) -> AbstractAsyncContextManager[Any]:
    return serving(directory, {"record": Recorder(world.controller).command})


def record(directory: Path, *arguments: str) -> Result:
    """What the command says."""
    return criproxy("record", "--control-socket", directory / "control.sock", *arguments)


async def test_a_trace_of_some_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is there and who comes meanwhile are in the file, which nobody else can read."""
    now_s, file = 0.0, tmp_path / "trace.jsonl"
    monkeypatch.setattr("criproxy.cli.operate.record.time", SimpleNamespace(monotonic=lambda: now_s))
    async with recording(tmp_path) as world:
        await world.run(sharer("before"))
        running = asyncio.create_task(asyncio.to_thread(record, tmp_path, str(file), "--for", "1.5s"))
        await world.poll(lambda: file.exists() and file.stat().st_size > 0)
        await world.run(sharer("later"))
        await world.rested()
        now_s = 1.5
        result = await running

    header, events = read_trace(file)
    kinds = [each.event for each in events]
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith(f"recorded {len(kinds)} events, ")
    assert header.policy == "static"
    assert [event.pod.name for event in kinds if isinstance(event, PodCreated)] == ["before", "later"]
    assert sum(isinstance(event, ContainerStarted) for event in kinds) == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_closed_output_records_nothing(tmp_path: Path) -> None:
    """It is no recording of so many events."""
    async with recording(tmp_path):
        words = f'exec "{sys.executable}" -m criproxy record - --for 0s --control-socket {tmp_path}/control.sock >&-'
        process = await asyncio.create_subprocess_exec("sh", "-c", words, stderr=subprocess.PIPE)
        _, said = await process.communicate()

    assert process.returncode == 2
    assert said == b"Error: standard output is closed: there is nowhere to write to\n"


async def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    """The file is whole, and the exit status 0."""
    async with recording(tmp_path):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "criproxy", "record", "-", "--control-socket", str(tmp_path / "control.sock")),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout
        first = await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, said = await process.communicate()

    assert first.startswith(b'{"criproxy_trace": 1')
    assert (process.returncode, rest) == (0, b"")
    assert said.startswith(b"recorded 0 events")


async def test_a_trace_that_would_be_too_large(tmp_path: Path) -> None:
    """It ends before, with exit status 1 and the reason."""
    file = tmp_path / "trace.jsonl"
    async with recording(tmp_path) as world:
        for number in range(3):
            await world.run(sharer(f"p{number}"))
        result = await asyncio.to_thread(record, tmp_path, str(file), "--max-size", "1k")

    assert result.exit_code == 1
    assert "it ended early: the next event would make it larger than 1000 bytes" in result.stderr
    assert 0 < file.stat().st_size <= 1000
    assert len(list(read_trace(file)[1])) == file.read_text().count("\n") - 1


async def test_a_daemon_that_ends(tmp_path: Path) -> None:
    """What was recorded until then is there."""
    file = tmp_path / "trace.jsonl"
    async with recording(tmp_path) as world:
        running = asyncio.create_task(asyncio.to_thread(record, tmp_path, str(file)))
        await world.poll(lambda: file.exists() and file.stat().st_size > 0)
    result = await running

    assert result.exit_code == 1
    assert "it ended early: " in result.stderr
    assert read_trace(file)[0].policy == "static"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        ([], 2, "Missing argument 'FILE'"),
        (["NEW"], 1, "no criproxy daemon listens on"),
        (["OLD"], 2, "already exists: --force replaces it"),
        (["NEW", "--for", "long"], 2, "'long' must be a duration such as"),
        (["NEW", "--max-size", "big"], 2, "'big' must be a size"),
        (["/proc/nowhere/trace"], 2, "cannot be written: No such file or directory"),
    ],
)
def test_wrong_use(tmp_path: Path, arguments: list[str], exit_code: int, said: str) -> None:
    """Each is a sentence."""
    (tmp_path / "OLD").touch()

    result = record(tmp_path, *(str(tmp_path / word) if word.isupper() else word for word in arguments))

    assert result.exit_code == exit_code
    assert said in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ": is empty: it must be a trace"),
        ("{}\n", ":1: this is not a trace of version 1"),
        ('{"criproxy_trace": 1, "topology": {}}\n', ":1: Header.topology.cpus is missing"),
    ],
)
def test_files_that_are_no_traces(tmp_path: Path, text: str, said: str) -> None:
    """Reading one says where and what."""
    file = tmp_path / "trace.jsonl"
    file.write_text(text)

    with pytest.raises(UsageError) as error:
        read_trace(file)
    with pytest.raises(UsageError, match="is a directory: it must be a trace"):
        read_trace(tmp_path)

    assert f"{file}{said}" in str(error.value)


async def test_for_no_time_at_all(tmp_path: Path) -> None:
    """Who is on the node is written, and it ends."""
    file = tmp_path / "trace.jsonl"
    async with recording(tmp_path) as world:
        await world.run(sharer("before"))
        result = await asyncio.wait_for(asyncio.to_thread(record, tmp_path, str(file), "--for", "0s"), 60)

    kinds = [each.event for each in read_trace(file)[1]]
    assert (result.exit_code, result.stdout) == (0, "")
    assert [event.pod.name for event in kinds if isinstance(event, PodCreated)] == ["before"]


async def test_a_file_that_is_no_regular_one(tmp_path: Path) -> None:
    """A pipe or device is written to as it is: there is nothing in it to replace."""
    async with recording(tmp_path):
        result = await asyncio.to_thread(record, tmp_path, "/dev/null", "--for", "0s", "--force")

    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("recorded 0 events")


async def test_a_full_disk_ends_it(tmp_path: Path) -> None:
    """Exit status 1, and a sentence."""
    async with recording(tmp_path):
        result = await asyncio.to_thread(record, tmp_path, "/dev/full", "--for", "0s", "--force")

    assert (result.exit_code, result.exception.__class__) == (1, SystemExit)
    assert "Error: No space left on device" in result.stderr
