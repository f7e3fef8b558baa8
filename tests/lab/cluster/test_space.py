"""Nothing of the cluster is left, however it ends."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cluster import space
from lab.containerd.cgroups import PodCgroups
from lab.provenance import ROOT
from tests.daemons import until

pytestmark = pytest.mark.e2e
HOLD = """
import subprocess, sys
from lab.cluster import space
from lab.containerd.cgroups import PodCgroups
with space.own_folder() as folder:
    PodCgroups(f"/{folder.name}").make(f"/{folder.name}/kubepods/pod1")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def namespaces() -> None:
    """Skip, with the reason, where there can be no namespaces and cgroups."""
    if reason := space.missing():
        pytest.skip(reason)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name)
def test_folder_and_cgroups_go_with_their_owner(how: signal.Signals) -> None:
    """A keeper outside removes them."""
    command = (sys.executable, "-c", HOLD)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        folder = Path(process.stdout.readline().strip())
        assert folder.is_dir()
        assert groups(folder)
        process.send_signal(how)
    asyncio.run(until(lambda: not folder.exists() and not groups(folder)))


def groups(folder: Path) -> list[Path]:
    """The cgroups of that name."""
    return [*Path("/sys/fs/cgroup").glob(folder.name), *Path("/sys/fs/cgroup").glob(f"*/{folder.name}")]


def test_namespaces_of_its_own(tmp_path: Path) -> None:
    """Mounts, network and device nodes of the cluster are not this machine's, which stays as it is."""
    (folder := tmp_path / "folder").mkdir()
    (logs := tmp_path / "logs").mkdir()
    program = f"""
import os, stat
from pathlib import Path
from lab.cluster import space
space.enter(Path({str(folder)!r}), Path({str(logs)!r}))
os.mknod("/dev/criproxy-test", stat.S_IFCHR | 0o666, os.makedev(1, 3))
Path("/run/criproxy-test").touch()
Path("/var/lib/kubelet/criproxy-test").touch()
print(sorted(os.listdir("/sys/class/net")) and os.path.exists("/dev/null"))
"""
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c"]
    done = subprocess.run([*command, program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    left = ("/dev/criproxy-test", "/run/criproxy-test", "/var/lib/kubelet/criproxy-test")
    assert [path for path in left if os.path.lexists(path)] == []
    assert (folder / "mounts/kubelet/criproxy-test").exists()


def test_what_cannot_be_removed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cgroup that still has a process is an error in the end, and the folder stays."""
    monkeypatch.setattr(space, "END_S", 0.1)
    (folder := tmp_path / f"criproxy-cluster-test-{os.getpid()}").mkdir()
    cgroups = PodCgroups(f"/{folder.name}")
    cgroups.make(cgroups.root)
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            (groups(folder)[0] / "cgroup.procs").write_text(str(process.pid))
            with pytest.raises(OSError, match=folder.name):
                space.remove(folder)
            assert folder.exists()
        finally:
            process.kill()
    space.remove(folder)
    assert not groups(folder)
