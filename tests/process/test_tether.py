"""Programs that criproxy starts: they end with it however it ends, and none comes from the current directory."""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from tests.daemons import LIMIT_S, until
from tests.deviceplugin.hosts import t4
from tests.deviceplugin.program import Program
from tests.nvml import Driver

PLANTED = """
import os
with open({ran!r}, "a") as ran:
    print(__name__, *os.sys.argv, file=ran)
raise SystemExit(1)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with TemporaryDirectory(prefix="p") as name:
        yield Path(name)


async def with_programs(process: asyncio.subprocess.Process, wanted: Sequence[str]) -> list[psutil.Process]:
    """The descendants of a process, as soon as it has those whose command lines have these words."""

    def started() -> list[psutil.Process]:
        found = psutil.Process(process.pid).children(recursive=True)
        lines = [line for each in found if (line := command_line(each))]
        return found if all(any(word in line for line in lines) for word in wanted) else []

    programs: list[psutil.Process] = await until(started)
    return programs


def command_line(process: psutil.Process) -> str:
    """Its words; empty if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


async def end_with(process: asyncio.subprocess.Process, programs: Sequence[psutil.Process]) -> None:
    """Kill a process, and wait until *programs* have ended, too."""
    process.kill()
    await process.wait()
    _, left = await asyncio.to_thread(psutil.wait_procs, programs, LIMIT_S / 3)
    for each in left:
        each.kill()
    assert not left


async def test_what_the_device_plugin_has_started_ends_when_it_is_killed(folder: Path) -> None:
    """Queries of a driver that hangs, and programs of the administrator."""
    (check := folder / "check").write_text("#!/bin/sh\nexec sleep 1000\n")
    check.chmod(0o755)
    async with Program(folder, driver=Driver(gpus=(t4(0),))) as program:
        health = f"{{commands: [{{class: ali-npu, command: [{check}]}}]}}"
        await program.begin(f"{{advertise: [nvidia, ali-npu], health: {health}}}", "/dev/npu0")
        program.host.use(Driver(hangs=True))
        program.host.plug("/dev/nvidia1")
        programs = await with_programs(program.process, ["nvml_report", "nvml_events", "sleep 1000"])

        await end_with(program.process, programs)


async def start(program: Sequence[str | Path], folder: Path, cwd: Path) -> asyncio.subprocess.Process:
    """Start a program in *cwd* that finds no other ones and has its temporary files in *folder*."""
    return await asyncio.create_subprocess_exec(
        *program,
        cwd=cwd,
        env={**os.environ, "TMPDIR": str(folder), "PATH": "/nonexistent"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def test_no_program_comes_from_the_current_directory(folder: Path) -> None:
    """Else whoever can write there runs what they like as root."""
    for name in ("criproxy", "multiprocessing", "pynvml"):
        (place := folder / "here" / name).mkdir(parents=True)
        (place / "__init__.py").write_text(PLANTED.format(ran=str(folder / "ran")))
    command = (Path(sys.executable).with_name("criproxy"), "support-bundle", "--output", "-")
    process = await start(command, folder, folder / "here")
    async with asyncio.timeout(LIMIT_S):
        said, _ = await process.communicate()

    assert not (folder / "ran").exists(), (folder / "ran").read_text()
    assert process.returncode == 0, said
