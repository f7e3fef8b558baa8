"""The parts need no other capability than that of the unit: they run as root without any other one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.controls.cgroups import UNIFIED, Cgroup
from tests.controls.disks import Disk

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv"),
]

CAPABILITY = "0000000000800000"
"""CAP_SYS_NICE alone, as in /proc/PID/status."""
USER = "65534"
PROGRAM = """
import sys
from pathlib import Path
from criproxy.controls.journal import Journal
from criproxy.controls.serve import all_parts
from criproxy.model.controls import BlockIo, ContainerControls, Scheduling, Throttle

print(Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0])
cgroup, disk, state_dir, unified = sys.argv[1:]
controls = ContainerControls(
    cgroup=cgroup,
    scheduling=Scheduling(policy="batch", nice=-5, io_class="rt", io_priority=1),
    block_io=BlockIo(throttles=(Throttle(devices=(disk,), read_bps=1 << 20),)),
    burst_us=None if unified == "True" else 10_000,
)
for part in all_parts(Path("/"), Journal.open(Path(state_dir), Path("/"))):
    said = [part.apply("c", controls, None), part.look("c", controls), part.forget("c", controls)]
    print(part.name, said, part.drift)
"""


def test_one_capability_is_enough(tmp_path: Path) -> None:
    """For a container of another user."""
    with Disk(tmp_path, "disk") as disk, Cgroup() as cgroup:
        if not UNIFIED:
            cgroup.file("cpu.cfs_quota_us").write_text("50000")
        cgroup.run("setpriv", f"--reuid={USER}", "--clear-groups", "sleep", "1000")
        confined = ["setpriv", "--bounding-set=-all,+sys_nice", "--inh-caps=-all", "--no-new-privs"]
        command = [*confined, sys.executable, "-c", PROGRAM, cgroup.path, disk.path, str(tmp_path), str(UNIFIED)]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()

    assert said == [CAPABILITY, *(f"{name} [[], [], []] 0" for name in ("scheduling", "RDT", "block I/O", "CPU burst"))]
