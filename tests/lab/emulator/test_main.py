"""The embedded runtime as a process."""

import asyncio
import signal
import sys
from pathlib import Path

from criproxy.cri.runtime import RuntimeClient


async def test_it_restarts_with_its_containers(tmp_path: Path) -> None:
    """It says when it listens; SIGHUP is a restart, after which it knows what it knew; SIGTERM ends it well."""
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
