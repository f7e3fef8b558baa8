"""A guest as one uses it: its command's output and exit status, what it sees and what it leaves, and how it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.usefixtures("guests_work")

COMMAND = [sys.executable, "-m", "lab.vm", "--topology", "1s-1n"]
LOOK = """
cat /sys/devices/system/cpu/online; pwd; id -u
stat -f -c %T /sys/fs/cgroup; cat /sys/fs/cgroup/cgroup.subtree_control
awk '/SigIgn/ { print $2 }' /proc/self/status
echo complaint >&2
echo kept > /share/file; echo lost > /etc/criproxy-vm-was-here
exit 7
"""


def test_a_guest_runs_one_command_on_this_machines_files(tmp_path: Path) -> None:
    """Output, errors and exit status come back; of what it writes only the share's part stays."""
    (tmp_path / "share").mkdir()
    words = ["--share", str(tmp_path / "share"), "--cmd", LOOK]
    done = subprocess.run([*COMMAND, *words], cwd=ROOT, capture_output=True, text=True, check=False)

    cpus, directory, user, cgroup, controllers, ignored = done.stdout.splitlines()
    assert (cpus, directory, user, cgroup) == ("0-3", str(ROOT), "0", "cgroup2fs")
    assert {"cpu", "cpuset", "memory", "pids"} <= set(controllers.split())
    assert int(ignored, 16) & 1 << (signal.SIGINT - 1) == 0
    assert (done.stderr, done.returncode) == ("complaint\n", 7)
    assert (tmp_path / "share/file").read_text() == "kept\n"
    assert not Path("/etc/criproxy-vm-was-here").exists()


def test_an_interrupted_guest_leaves_nothing(tmp_path: Path) -> None:
    """Neither a process nor a file."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([*COMMAND, "--cmd", "sleep 1000"], env=environment, stderr=subprocess.DEVNULL) as process:
        while not list(tmp_path.glob("*/console.log")):
            time.sleep(0.05)  # QEMU tells nobody that it has begun
        process.terminate()

    assert process.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())
