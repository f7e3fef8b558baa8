"""The watcher alone in a process, as the device plugin has it: ``python -m tests.rigs.usage.watcher HOST SOCKET``."""

import asyncio
import sys
from pathlib import Path

import structlog

from criproxy.devices.plan import PluginPlan
from criproxy.devices.usage_options import NVML
from criproxy.observe.failures import Failures
from criproxy.observe.tasks import Tasks
from criproxy.watcher.watcher import Watcher


async def watch(host_root: Path, socket: str) -> None:
    """Watch until the end of the process."""
    log = structlog.get_logger()
    nvml = (sys.executable, "-m", "tests.rigs.usage.nvml", str(host_root / "pids"))
    watcher = Watcher(socket, host_root, log, nvml)
    watcher.use(PluginPlan(advertised=(), usage=(NVML,)))
    watcher.set_cards({}, has_nvml=True)
    watcher.start(Tasks(log, Failures()))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(watch(Path(sys.argv[1]), sys.argv[2]))
