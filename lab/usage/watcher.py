"""The watcher alone in a process, as the device plugin has it: ``python -m lab.usage.watcher HOST SOCKET``."""

import asyncio
import sys
from pathlib import Path

import structlog

from criproxy.deviceplugin.usage.watcher import Watcher
from criproxy.devices.options.quota_options import NVML
from criproxy.devices.plugin.plan import PluginPlan
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks


async def watch(host_root: Path, socket: str) -> None:
    """Watch until the end of the process."""
    log = structlog.get_logger()
    nvml = (sys.executable, "-m", "lab.usage.nvml", str(host_root / "pids"))
    watcher = Watcher(socket, host_root, log, nvml)
    watcher.use(PluginPlan(advertised=(), usage=(NVML,)))
    watcher.set_cards({}, has_nvml=True)
    watcher.start(Tasks(log, Failures()))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(watch(Path(sys.argv[1]), sys.argv[2]))
