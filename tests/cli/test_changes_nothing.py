"""Commands that only look, and those that fail, leave everything as it was."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from criproxy.model.node import Node
from criproxy.model.text.notices import timestamp
from criproxy.model.workload import Pod
from criproxy.simulate.hosts import machine
from criproxy.store import Store
from criproxy.store.reader import open_reader
from tests.asking import criproxy
from tests.cli.operate.test_record import record
from tests.sysfs import write_sysfs

LONG_AGO_S = 1_700_000_000
MACHINE = machine(nodes=1, cores=4, threads=1)
NODE = Node(MACHINE, pods={"s": Pod(key="s", name="web", namespace="shop")})
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from criproxy.store import Store
from tests.cli.test_changes_nothing import MACHINE, NODE, Node

async def save():
    await Store(Path(sys.argv[1])).save(Node(MACHINE), NODE, [])
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(save())
"""


def left(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of each file in *directory*, and the time of itself."""
    found = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}
    return {**found, ".": (b"", directory.stat().st_mtime_ns)}


def age(directory: Path) -> None:
    """Make everything in *directory* old."""
    for path in (*directory.iterdir(), directory):
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))


@pytest.fixture(params=["stopped", "killed", "read-before"])
async def state(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The state directory that a daemon has left."""
    directory = tmp_path / "state"
    write_sysfs(tmp_path / "host", MACHINE)
    if request.param == "killed":
        run = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", KILLED, str(directory)], check=False)
        assert run.returncode == -signal.SIGKILL
        assert (directory / "criproxy.db-wal").stat().st_size
    else:
        store = Store(directory)
        await store.save(Node(MACHINE), NODE, [])
        store.close()
    if request.param == "read-before":  # as an older criproxy left it
        (directory / "criproxy.db-wal").touch()
        (directory / "criproxy.db-shm").write_bytes(bytes(32_768))
    age(directory)
    return directory


def test_a_look_at_the_state_changes_no_file(state: Path) -> None:
    """Neither content nor time of any, and none is made; and the time that is told is that of the last save."""
    if (wal := state / "criproxy.db-wal").exists() and not wal.stat().st_size:
        os.utime(wal)
    before = left(state)
    with open_reader(state) as reader:
        saved = timestamp(reader.saved_s)
    assert saved > timestamp(LONG_AGO_S)
    places = ["--control-socket", str(state.parent / "none.sock"), "--state-dir", str(state)]
    for _ in range(2):
        arguments = ["status", *places, "--host-root", str(state.parent / "host"), "--format", "json"]
        result = criproxy(*arguments)
        assert result.exit_code == 0, result.output
        values = json.loads(result.output)
        assert (values["time"], values["totals"]["pods"]) == (saved, 1)
        assert "was stored in" in values["notices"][0]["text"]
        assert f"at {saved}" in values["notices"][0]["text"]
    assert left(state) == before


def test_a_daemon_that_goes_on_writing_is_read_whole(tmp_path: Path) -> None:
    """What is copied while it changes is copied again."""

    async def both() -> None:
        store, before = Store(tmp_path), Node(MACHINE)
        for number in range(30):
            after = before.replace(pods={f"s{number}-{i}": Pod(key=f"s{number}-{i}", name="p") for i in range(50)})
            await store.save(before, after, [])
            with open_reader(tmp_path) as reader:
                assert reader.node(MACHINE) == after
            before = after
        store.close()

    asyncio.run(both())


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_recording_that_cannot_begin_changes_no_file(tmp_path: Path, force: list[str]) -> None:
    """The next one is not blocked by it; an old file is replaced when there is something to write."""
    file = tmp_path / "trace.jsonl"
    for _ in range(2):
        result = record(tmp_path, str(file), *force)
        assert result.exit_code == 1
        assert "already exists" not in result.output
        assert not file.exists()
    file.write_text("old")
    assert record(tmp_path, str(file), "--force").exit_code == 1
    assert file.read_text() == "old"
