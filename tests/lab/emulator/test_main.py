"""The embedded runtime as a process."""

import asyncio
import signal
import sys
from pathlib import Path

from criproxy.cri.runtime import RuntimeClient
from lab.kubelet.kubelet import MiniKubelet, PodSpec


async def test_it_restarts_with_its_containers(tmp_path: Path) -> None:
    """It says when it listens; SIGHUP is a restart, after which it knows what it knew; SIGTERM ends it well."""
    path = tmp_path / "r.sock"
    arguments = ("-m", "lab.emulator", "--socket", str(path))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    lines = [await process.stdout.readline()]
    client = RuntimeClient(f"unix://{path}")
    await MiniKubelet(client).run_sandbox(PodSpec("pod"))

    process.send_signal(signal.SIGHUP)
    lines.append(await process.stdout.readline())
    sandboxes = await client.list_pod_sandbox()
    await client.close()
    process.terminate()

    assert lines[0] == lines[1] == f"listening at {path}\n".encode()
    assert len(sandboxes) == 1
    assert await process.wait() == 0
