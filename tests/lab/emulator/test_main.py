"""The embedded runtime as a process."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from criproxy.cri.runtime import RuntimeClient


async def test_it_serves_until_terminated(tmp_path: Path) -> None:
    """It says when it listens, answers, and ends with status 0 at SIGTERM."""
    path = tmp_path / "r.sock"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lab.emulator",
        "--socket",
        str(path),
        "--containers",
        "3",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    line = await process.stdout.readline()
    client = RuntimeClient(f"unix://{path}")
    containers = await client.list_containers()
    await client.close()

    process.terminate()

    assert await process.wait() == 0
    assert line.decode().strip() == f"listening at {path}"
    assert len(containers) == 3


async def test_it_restarts_with_its_containers(tmp_path: Path) -> None:
    """SIGHUP is a restart of the runtime: it listens again, and knows what it knew."""
    path = tmp_path / "r.sock"
    arguments = ("-m", "lab.emulator", "--socket", str(path), "--containers", "3")
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    lines = [await process.stdout.readline()]

    process.send_signal(signal.SIGHUP)
    lines.append(await process.stdout.readline())
    client = RuntimeClient(f"unix://{path}")
    containers = await client.list_containers()
    await client.close()
    process.terminate()

    assert lines[0] == lines[1] == f"listening at {path}\n".encode()
    assert len(containers) == 3
    assert await process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--cpus", "3-1"), "cpus"),
        (("--mems", ""), "mems is empty"),
        (("--socket", "/nonexistent/r.sock"), "cannot listen at /nonexistent/r.sock"),
        (("--containers", "-1"), "--containers"),
    ],
)
async def test_wrong_options_are_explained(tmp_path: Path, arguments: tuple[str, str], words: str) -> None:
    """The message names the option or the path, and the status is not 0."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lab.emulator",
        "--socket",
        str(tmp_path / "r"),
        *arguments,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()

    assert process.returncode
    assert words in stderr.decode()
    assert "Traceback" not in stderr.decode()
