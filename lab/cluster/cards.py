"""Made-up GPUs of the worker: what the driver shows of them, NVML's answers, and criproxy's device plugin."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from criproxy.devices.plugin.named_configuration import FILE_NAME
from lab.cluster.process import ClusterError, Program
from lab.provenance import SHARED
from tests.deviceplugin.fake_nvml import FakeNvml, compile_library
from tests.deviceplugin.hosts import Host

DIVIDED, WHOLE = "GPU-491287c9-bc95-b926-a488-9503064e72a1", "GPU-2f1c7ad0-53a1-4c6e-9d2b-1f0e9c3b5a77"
_CARDS = f"""\
driver 550.54.15 12040
gpu {DIVIDED} Tesla_T4 15360 0 0000:17:00.0 7 5 0 0
gpu {WHOLE} Tesla_T4 15360 1 0000:65:00.0 7 5 0 0
"""
PROFILE, RESOURCE = "t4-4g", "criproxy.io/t4-4g"
VGPUS = 3
ALLOWED_MIB = 4096
POLICY = f"""\
devices:
  classes: [nvidia]
  plugin:
    advertise: [nvidia]
    profiles: [{{name: {PROFILE}, class: nvidia, memory: {ALLOWED_MIB}Mi, count: {VGPUS}, select: {{indexes: [0]}}}}]
    quota: {{period: 500ms, grace: 1s, samples: 3, marginMib: 512, stopTimeout: 1s}}
"""
_MAJOR = 195
_NODES = {"nvidia0": (_MAJOR, 0), "nvidia1": (_MAJOR, 1), "nvidiactl": (_MAJOR, 255), "nvidia-uvm": (240, 0)}
_PLACES = ("proc/driver", "sys/bus/pci/devices")


class Cards:
    """The GPUs, and who offers them; everything is written below *folder*, and *node* has the daemon's files."""

    def __init__(self, folder: Path, logs: Path, node: Path) -> None:
        self._folder = folder
        self._logs = logs
        self._arguments = [f"--config={node}/policy.yaml", f"--control-socket={node}/run/control.sock"]
        self._arguments.append(f"--named-config={node}/state/{FILE_NAME}")
        self.nvml: FakeNvml
        self.plugin: Program

    def plug(self) -> None:
        """Make device nodes, and what the driver shows, in this process's mount namespace.

        Raises:
            ClusterError: there is no compiler, or no source of the made-up library.
        """
        tools = SHARED / "tools/fake-nvml"
        if shutil.which("gcc") is None or not tools.is_dir():
            raise ClusterError(f"the made-up NVML needs gcc and {tools}")
        self._folder.mkdir()
        self.nvml = FakeNvml(compile_library(tools, self._folder), self._folder / "cards.txt", _CARDS)
        host = Host(self._folder)
        self.nvml.plug(host)
        for place in _PLACES:
            subprocess.run(["mount", "--bind", str(host.root / place), f"/{place}"], check=True)
        for name, numbers in _NODES.items():
            Path(f"/dev/{name}").unlink(missing_ok=True)  # another program's, in the /dev below ours
            os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(*numbers))

    async def start(self) -> None:
        """Start the device plugin."""
        command = [sys.executable, "-P", "-m", "criproxy", "device-plugin", *self._arguments]
        self.plugin = Program(command, self._logs / "device-plugin.log", self.nvml.environ)
        await self.plugin.start()

    def use(self, card: str, used_mib: Mapping[int, int]) -> None:
        """Let NVML say how much of a card each process uses; nothing else uses any."""
        self.nvml.say(*(f"proc {card} {pid} {mib} 40" for pid, mib in used_mib.items()))
