"""A start while something that it reads hangs, or while `criproxy release` has the state directory."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from criproxy.cri import api_pb2
from criproxy.cri.runtime import RuntimeCallError
from criproxy.daemon import offline_release, start
from criproxy.errors import StoreError
from criproxy.process.log import structlog
from criproxy.simulate.hosts import machine
from criproxy.store.holder import still_running
from criproxy.store.store import InUse, Store
from lab.emulator.runtime import EmbeddedRuntime
from tests.daemon.test_serve import hanging, starting, version
from tests.daemons import LIMIT_S, Serve, until
from tests.gates import Gate
from tests.node.world import World, owner
from tests.sysfs import write_sysfs

LOG = structlog.get_logger("test")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gate:
    """The disk of the state directory answers when this gate is opened: until then, nothing can be written."""
    gate, truncate = Gate(), os.ftruncate

    def slow(descriptor: int, length: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(tmp_path / "state"):
            gate.wait()
        truncate(descriptor, length)

    monkeypatch.setattr(os, "ftruncate", slow)
    return gate


async def test_a_disk_that_hangs_holds_up_only_the_start(
    tmp_path: Path, disk: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop, and with it the data plane, goes on; the log says what it waits for."""
    monkeypatch.setattr(start, "SILENT_S", 0.0)
    with capture_logs() as lines:
        async with asyncio.timeout(LIMIT_S):
            opening = asyncio.create_task(start.opened_store(tmp_path / "state"))
            await until(lambda: lines)
            assert not opening.done()

            disk.set()
            store = await opening

    assert [(line["event"], line["reason"]) for line in lines] == [
        ("calls that need a decision wait", f"the state directory {tmp_path / 'state'} does not answer")
    ]
    assert store.missing is None
    store.close()


@pytest.mark.parametrize(
    ("place", "what"),
    [("sys/devices/system/cpu/online", "/sys or /proc"), ("state/last-good.json", "the policy file or")],
)
async def test_a_start_that_waits_for_a_disk_can_be_stopped(tmp_path: Path, place: str, what: str) -> None:
    """SIGTERM ends it in order within seconds: nobody has to wait until it is killed."""
    serve = Serve(tmp_path, cpus="0-3")
    (tmp_path / "state").mkdir()
    hanging(tmp_path / place)
    async with asyncio.timeout(LIMIT_S), EmbeddedRuntime(tmp_path / "runtime.sock"), starting(serve):
        await serve.logged(what)
        async with serve.client() as client:
            call = client.call("RunPodSandbox", api_pb2.RunPodSandboxRequest(), api_pb2.RunPodSandboxResponse)
            waiting = asyncio.create_task(call)
            await client.version()

            serve.signal(signal.SIGTERM)

            await serve.message("STOPPING=1")
            assert await serve.exit_status() == 0
            with pytest.raises(RuntimeCallError, match="criproxy is stopping"):
                await waiting
        assert serve.log.read_text().splitlines()[-1].split()[-2:] == ["stopped", "[criproxy.daemon]"]


KEEPS_THE_LOCK = """
import ctypes, os, sys, threading, time
from pathlib import Path
from criproxy.store.store import Store
store = Store(Path(sys.argv[1]))
threading.Thread(target=time.sleep, args=(1000,)).start()
print("has it", flush=True)
ctypes.CDLL(None).syscall(ctypes.c_long(93 if os.uname().machine == "aarch64" else 60), 0)
"""
"""Has the state directory, and ends but for a thread: as one that was killed while it waits for a disk."""


@asynccontextmanager
async def has_the_lock(state: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that has the state directory and cannot end by itself."""
    command = (sys.executable, "-c", KEEPS_THE_LOCK, str(state))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout
        assert await process.stdout.readline() == b"has it\n"
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_daemon_waits_for_one_that_was_killed_and_cannot_end(tmp_path: Path) -> None:
    """It says so, serves meanwhile, and begins when the other is gone; `criproxy status` says it, too."""
    state = tmp_path / "state"
    async with has_the_lock(state) as stuck:
        serve = Serve(tmp_path)
        async with asyncio.timeout(LIMIT_S), EmbeddedRuntime(tmp_path / "runtime.sock"), starting(serve) as ready:
            await serve.logged(f"(process {stuck.pid}) that has been killed, but cannot end")
            assert await version(serve.socket) == "criproxy-sim"
            assert "has been killed, but cannot end" in still_running(state)
            assert not ready.done()

            stuck.kill()

            await ready


async def test_a_release_on_a_disk_that_hangs_unpins_all_the_same(
    tmp_path: Path, disk: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be stored is said."""
    monkeypatch.setattr(offline_release, "OPEN_S", 0.1)
    async with asyncio.timeout(LIMIT_S):
        disk.set()
        write_sysfs(tmp_path, machine(nodes=1, cores=4, threads=1))
        async with World(tmp_path) as world:
            mine = await world.run(owner("mine"))
            await world.stop_criproxy()
            disk.clear()
            endpoint = f"unix://{tmp_path}/runtime.sock"

            answer = await offline_release.release(tmp_path / "state", endpoint, tmp_path, LOG)

            assert world.cpus(mine) == "0-3"
            assert "state has not answered for 0.1 s" in answer["not_remembered"]
            disk.set()


async def test_without_the_state_no_release_is_undone(
    tmp_path: Path, disk: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends, and says which disk does not answer."""
    monkeypatch.setattr(offline_release, "OPEN_S", 0.1)
    disk.set()
    Store(tmp_path / "state").close()
    disk.clear()

    with pytest.raises(StoreError, match=r"state has not answered for 0\.1 s"):
        await offline_release.release(tmp_path / "state", "unix:///nowhere.sock", tmp_path, LOG, undo=True)
    disk.set()


async def test_a_daemon_waits_for_a_release_and_serves_meanwhile(tmp_path: Path) -> None:
    """It begins when the release is over, instead of failing again and again without a runtime for the kubelet."""
    serve = Serve(tmp_path)
    with closing(Store(tmp_path / "state", for_release=True)) as release:
        async with asyncio.timeout(LIMIT_S), EmbeddedRuntime(tmp_path / "runtime.sock"), starting(serve) as ready:
            await serve.logged(f"in use by 'criproxy release' (process {os.getpid()})")
            assert await version(serve.socket) == "criproxy-sim"
            assert still_running(tmp_path / "state").endswith("it is a 'criproxy release'; ask again when it has ended")
            assert not ready.done()

            release.close()

            await ready


async def test_another_daemon_is_not_waited_for(tmp_path: Path) -> None:
    """It will not give the directory back."""
    daemon = Store(tmp_path / "state")
    try:
        with pytest.raises(InUse, match=rf"another criproxy \(process {os.getpid()}\); stop that one"):
            await start.opened_store(tmp_path / "state")
    finally:
        daemon.close()


@pytest.mark.parametrize("command", ["serve", "device-plugin"])
def test_a_service_that_starts_outlives_a_reload(command: str) -> None:
    """The signal may come before its handler is there, which would end the process."""
    script = (
        "import os, signal, criproxy.cli; from criproxy.__main__ import run\n"
        "criproxy.cli.main = lambda **_: os.kill(os.getpid(), signal.SIGHUP)\n"
        "run()"
    )

    assert subprocess.run([sys.executable, "-c", script, command], check=False).returncode == 0
    assert subprocess.run([sys.executable, "-c", script, "status"], check=False).returncode == -signal.SIGHUP
