"""A guest as one uses it: its command's output and exit status, what it sees and what it leaves, and how it ends."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.vm import guest
from lab.vm.kernel import GuestError
from lab.vm.machines import named
from lab.vm.qemu import Hardware
from tests.conftest import ROOT

pytestmark = pytest.mark.usefixtures("guests_work")

SMALL = Hardware(named("1s-1n"))
COMMAND = [sys.executable, "-m", "lab.vm", "--topology", "1s-1n"]
LOOK = """
cat /sys/devices/system/cpu/online; pwd; echo "$WORD"; id -u
stat -f -c %T /sys/fs/cgroup; cat /sys/fs/cgroup/cgroup.subtree_control
awk '/SigIgn/ { print $2 }' /proc/self/status
echo complaint >&2
echo kept > /out/file; echo lost > /etc/criproxy-vm-was-here
exit 7
"""


def test_a_guest_runs_one_command_on_this_machines_files(tmp_path: Path) -> None:
    """Output, errors and exit status come back; of what it writes only the share's part stays."""
    (tmp_path / "share").mkdir()
    words = ["--share", f"{tmp_path}/share:/out", "--env", "WORD=two words", "--cmd", LOOK]
    done = subprocess.run([*COMMAND, *words], cwd=ROOT, capture_output=True, text=True, check=False)

    cpus, directory, word, user, cgroup, controllers, ignored = done.stdout.splitlines()
    assert (cpus, directory, word, user, cgroup) == ("0-3", str(ROOT), "two words", "0", "cgroup2fs")
    assert {"cpu", "cpuset", "memory", "pids"} <= set(controllers.split())
    assert int(ignored, 16) & 1 << (signal.SIGINT - 1) == 0
    assert (done.stderr, done.returncode) == ("complaint\n", 7)
    assert (tmp_path / "share/file").read_text() == "kept\n"
    assert not Path("/etc/criproxy-vm-was-here").exists()


@pytest.mark.thorough
def test_a_shell_is_on_our_terminal() -> None:
    """It has job control and the terminal's size, and its exit status is that of the whole."""
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(ROOT)
        os.execv(COMMAND[0], COMMAND)  # noqa: S606 (no shell is wanted)
    try:
        assert "# " in _read_until(terminal, "# ")
        os.write(terminal, b"stty size; sed -u s/l/L/\nhello\n")
        assert "24 80" in _read_until(terminal, "heLlo\r\n")
        os.write(terminal, b"\x03")
        _read_until(terminal, "# ")
        os.write(terminal, b"exit 5\n")
        _read_until(terminal, "")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    finally:
        os.close(terminal)


def _read_until(terminal: int, wanted: str) -> str:
    """What the terminal shows up to *wanted*, or up to the end if that is nothing."""
    seen = ""
    while not wanted or wanted not in seen:
        assert select.select([terminal], [], [], 60)[0], f"no {wanted!r} follows: {seen}"
        try:
            seen += os.read(terminal, 4096).decode(errors="replace")
        except OSError:  # the other side has closed
            assert not wanted, f"it ended without {wanted!r}: {seen}"
            break
    return seen


def test_a_guest_whose_time_is_over_is_ended() -> None:
    """Nothing of it is left, and the exit status says so."""
    done = subprocess.run([*COMMAND, "--timeout", "0.5", "--cmd", "true"], capture_output=True, text=True, check=False)

    assert done.returncode == 124
    assert "its time is over" in done.stderr


def test_a_guest_that_dies_is_an_error_with_its_console() -> None:
    """The command neither ended nor ran out of time."""
    job = guest.Job("echo b >/proc/sysrq-trigger; sleep 1000", ROOT, 600.0)

    with pytest.raises(GuestError, match=r"(?s)ended before its command did.*console\.log.*[Rr]ese?t"):
        guest.run(SMALL, job)


def test_an_interrupted_guest_leaves_nothing(tmp_path: Path) -> None:
    """Neither a process nor a file."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([*COMMAND, "--cmd", "sleep 1000"], env=environment, stderr=subprocess.DEVNULL) as process:
        while not list(tmp_path.glob("*/console.log")):
            time.sleep(0.05)  # QEMU tells nobody that it has begun
        process.terminate()

    assert process.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        pytest.param(["--topology", "9s"], "there is no machine '9s'", id="machine"),
        pytest.param(["--topology", "custom", "--smp", "x"], "--smp: 'x'", id="custom"),
        pytest.param(["--cmd", "true", "--", "true"], "two ways to say the same", id="two-commands"),
        pytest.param([], "a shell needs a terminal", id="no-terminal"),
        pytest.param(["--cmd", "true", "--share", "/no/folder"], "there is no folder /no/folder", id="no-folder"),
        pytest.param(["--cmd", "true", "--share", "/:relative"], "no absolute path", id="place"),
        pytest.param(["--cmd", "true", "--env", "=x"], "--env: NAME=VALUE", id="variable"),
    ],
)
def test_wrong_use_is_told(words: list[str], complaint: str) -> None:
    """One sentence, exit status 2, and no guest."""
    done = subprocess.run(
        [*COMMAND, *words], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )

    assert complaint in done.stderr
    assert done.returncode == 2
