"""The demo as a user runs it: it checks itself, and leaves nothing behind however it ends."""

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.containerd import containerd

LIMIT_S = 120.0
NODE = re.compile(r"(/dev/\S+)/card0 is another /dev/null")
"""What the demo says of the device node that it has made."""
DESCRIBED = r"""
    State: +Running
    Last State: +Terminated
      Reason: +GPUMemoryQuotaExceeded
      Message: +6144 MiB used, 4096 MiB allowed on card0
      Exit Code: +137
"""


async def start(*before: str, **environ: str) -> asyncio.subprocess.Process:
    """Start the demo with its output in a pipe."""
    return await asyncio.create_subprocess_exec(
        *(*before, sys.executable, "-m", "lab.demo"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "COLUMNS": "200", **environ},
    )


async def output(process: asyncio.subprocess.Process) -> str:
    """Everything that is still to come."""
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        text = (await process.stdout.read()).decode()
        await process.wait()
    return text


def left_behind(directory: Path, said: str) -> list[str]:
    """Files in the folder for temporary files, cgroups of a containerd that had its folder there, and device nodes."""
    names = [path.name for path in directory.iterdir()]
    nodes = [folder for folder in NODE.findall(said) if Path(folder).exists()]
    return names + nodes + [str(group) for name in names for group in Path("/sys/fs/cgroup").glob(f"*/{name}")]


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for temporary files whose path leaves room for sockets."""
    with tempfile.TemporaryDirectory(prefix="cd-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture(params=["containerd", "embedded"])
def environ(request: pytest.FixtureRequest, short_path: Path) -> dict[str, str]:
    """Where temporary files go, and whether programs such as containerd can be found."""
    if request.param == "containerd" and (reason := containerd.available()):
        pytest.skip(reason)
    path = {} if request.param == "containerd" else {"PATH": "/nonexistent"}
    return {"TMPDIR": str(short_path), **path}


async def test_the_demo_shows_every_step_and_cleans_up(environ: dict[str, str], short_path: Path) -> None:
    """Placed, moved off, remembered, refused with a reason, given back, cut in two: each is checked and true."""
    process = await start(**environ)

    text = await output(process)

    assert process.returncode == 0, text
    assert ("the embedded runtime" in text) == ("PATH" in environ)
    assert "RESOURCE_EXHAUSTED: container default/greedy/main asks for" in text
    assert "because default/trader/main was created; read back" in text, "the story of the one that was moved"
    rows = [line for line in text.splitlines() if re.match(r" web +Burstable +200m", line)]
    moves = ["trader/main was created"] * 3 + ["trader ended"]
    assert re.search("its pod is Burstable$", rows[0].rstrip())
    for row, how in zip(rows[1:], moves, strict=True):
        assert re.search(rf"CPUs \S+ → \S+, because default/{how}$", row.rstrip()), text
    simulated = text.index("on a machine with four NUMA nodes, which is simulated")
    assert text.index("trader is removed") < simulated < text.index("A card of 8192 MiB"), "the second scene"
    assert "✓ database has its 4 CPUs and its memory on NUMA node" in text
    assert re.search(r"default/train/main +card0 +half-card +6144 of 4096", text), "criproxy usage"
    assert re.search(DESCRIBED, text), "kubectl describe"
    assert "✓ chat keeps running" in text
    assert text.count("✓") >= 17
    assert "✗" not in text
    assert left_behind(short_path, text) == []


@pytest.mark.parametrize(
    ("environ", "number", "after"),
    [
        pytest.param("containerd", signal.SIGINT, "train has card0", id="containerd-interrupt"),
        pytest.param("embedded", signal.SIGHUP, "trader runs on", id="embedded-hangup"),
    ],
    indirect=["environ"],
)
async def test_an_interrupted_demo_cleans_up(
    environ: dict[str, str], short_path: Path, number: signal.Signals, after: str
) -> None:
    """Ctrl-C, SIGTERM or a closed terminal ends all programs, the runtime and its pods; the exit status says so."""
    process = await start(**environ)
    assert process.stdout is not None
    before = ""
    async with asyncio.timeout(LIMIT_S):
        async for line in process.stdout:
            before += line.decode()
            if after in before:
                break

    process.send_signal(number)
    process.send_signal(number)  # a terminal that is closed tells its processes, and so does its shell
    text = await output(process)

    assert process.returncode == (1 if number is signal.SIGINT else 128 + number)
    assert "Traceback" not in text
    assert left_behind(short_path, before) == []
