"""Runs the watcher with made-up cards and containers, and measures the CPU time that it takes."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from criproxy.devices.classes.vgpu_profiles import Quota
from lab.bench.ways import cpu_ns_of
from lab.figures import Figure
from lab.usage.nvml import CARDS
from tests.deviceplugin.daemon import Daemon
from tests.deviceplugin.usage.hosts import grant, put_process

WARM_S = 3.0
"""Before it is measured: programs start."""
LIMIT_PERCENT = 0.5
"""Of the watcher and of the process that asks NVML, with the made-up library in it, together."""
NS_PER_S = 1_000_000_000
QUOTA = Quota(profile="gpu-8g", memory_mib=8192, cores_percent=12)


def measure(containers: int, seconds: float, warm_s: float = WARM_S) -> list[Figure]:
    """Watch so many containers on eight cards for so long."""
    with TemporaryDirectory(prefix="u") as name, sleeping(containers) as pids:
        folder = Path(name)
        for number, pid in enumerate(pids):
            put_process(folder, pid, f"c{number}")
            stat = folder / "proc" / str(pid) / "stat"
            stat.unlink()
            stat.symlink_to(f"/proc/{pid}/stat")  # what is read anew in each period costs what it costs
        (folder / "pids").write_text(json.dumps(pids))
        return asyncio.run(_measured(folder, containers, seconds, warm_s))


@contextmanager
def sleeping(count: int) -> Iterator[list[int]]:
    """Start so many processes."""
    processes = [subprocess.Popen(["/bin/sleep", "infinity"]) for _ in range(count)]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def _measured(folder: Path, containers: int, seconds: float, warm_s: float) -> list[Figure]:
    socket = folder / "control.sock"
    grants = [_grant(number, containers) for number in range(containers)]
    daemon = Daemon(socket, *grants)
    await daemon.start()
    watcher = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lab.usage.watcher", str(folder), str(socket))
    )
    try:
        await daemon.until_use("'containers':")
        await asyncio.sleep(warm_s)
        nvml = _child(watcher.pid)
        before, told = (cpu_ns_of(watcher.pid), cpu_ns_of(nvml)), len(daemon.said("device-usage"))
        await asyncio.sleep(seconds)
        after, reports = (cpu_ns_of(watcher.pid), cpu_ns_of(nvml)), daemon.said("device-usage")
    finally:
        watcher.kill()
        await watcher.wait()
        await daemon.stop()
    if len(reports[-1]["classes"][0]["containers"]) != containers or daemon.said("quota-incident"):
        raise RuntimeError(f"not every container is found, or one is over its quota: {reports[-1]}")
    own, other = (100 * (new - old) / NS_PER_S / seconds for new, old in zip(after, before, strict=True))
    what = f"{containers} containers on {CARDS} cards, {len(reports) - told} readings in {seconds:g} s"
    parts = (("watcher", own, None), ("process of NVML", other, None), ("both", own + other, LIMIT_PERCENT))
    return [Figure(what, way, "CPU of a core", percent, "%", limit) for way, percent, limit in parts]


def _grant(number: int, containers: int) -> Any:  # noqa: ANN401
    card = f"GPU-{number * CARDS // containers}"
    return grant(f"c{number}", card=card, kind="nvidia", ids=(f"{card}/gpu-8g/{number}",), quota=QUOTA)


def _child(pid: int) -> int:
    """The only child of a process."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)
