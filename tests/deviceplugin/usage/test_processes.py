"""Processes of /proc: whose container they are in, and which of them is killed."""

import gc
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.usage import processes as processes_module
from criproxy.deviceplugin.usage.processes import Processes, container_of, start_in
from criproxy.deviceplugin.usage.quota_incidents import GONE, kill, may_kill
from criproxy.devices.usage.values import Process, ProcessUse, Reading
from tests.deviceplugin.usage.hosts import container_id, put_exited_leader, put_process

LONG_AGO, FAR_AHEAD = 100, 1 << 50


def reading(*pids: int) -> Reading:
    """Return one in which these processes use a card."""
    uses = (ProcessUse(process=Process(pid=pid, start_ticks=0), card="a") for pid in pids)
    return Reading(kind="npu", at_s=time.monotonic(), processes=tuple(uses))


@pytest.mark.parametrize(
    ("threads", "container"),
    [
        pytest.param([(11, "S", "web")], "web", id="a-thread-runs"),
        pytest.param([(9, "Z", ""), (11, "X", ""), (12, "R", "web")], "web", id="others-have-exited-too"),
        pytest.param([(11, "S", "")], "", id="on-the-host"),
        pytest.param([(11, "Z", "")], "", id="all-have-exited"),
        pytest.param([], "", id="alone"),
    ],
)
def test_a_process_goes_on_without_its_first_thread(
    tmp_path: Path, threads: list[tuple[int, str, str]], container: str
) -> None:
    """With cgroup v1 the kernel shows that thread at the root; the first one that runs has the container."""
    put_exited_leader(tmp_path, 10, *threads)
    processes = Processes(tmp_path)
    (owned,) = processes.with_containers(reading(10)).processes

    assert owned.container_id == (container_id(container) if container else "")
    assert processes.is_same(owned.process, container_id("web")) == bool(container)


def test_real_processes_are_read() -> None:
    """This one has a start, and its name with brackets and blanks does not matter."""
    assert Processes().start_ticks(os.getpid()) > 0
    assert start_in(b"7 (x) S) (y z) R 1 " + b"0 " * 17 + b"4242 0 0") == 4242
    assert Processes().start_ticks(1 << 30) == 0


def test_a_process_that_has_exited_is_gone(tmp_path: Path) -> None:
    """With cgroup v1 its container cannot be found any more, though its number is still there; a known one is kept."""
    processes = Processes(tmp_path)
    put_process(tmp_path, 11, "web")
    processes.with_containers(reading(11))
    put_exited_leader(tmp_path, 10)
    put_exited_leader(tmp_path, 11)
    first, second = processes.with_containers(reading(10, 11)).processes

    assert (first.process.start_ticks, first.container_id) == (0, "")
    assert (second.process.start_ticks, second.container_id) == (100, container_id("web"))


LEADER_EXITS = """
import ctypes, os, threading, time
def stay():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    os.write(1, b"exited")
    time.sleep(1000)
threading.Thread(target=stay).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_without_its_first_thread_is_killed(tmp_path: Path) -> None:
    """The signal reaches the threads that go on."""
    with subprocess.Popen([sys.executable, "-c", LEADER_EXITS], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(6) == b"exited"
        put_exited_leader(tmp_path, process.pid, (process.pid + 1, "S", "web"))
        target = Process(pid=process.pid, start_ticks=100)
        try:
            found = kill(Processes(tmp_path), target, container_id("web"))
        finally:
            os.kill(process.pid, signal.SIGKILL)

    assert found == ""
    assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("pid", [-1, 0, 1, pytest.param(os.getpid(), id="own")])
def test_neither_groups_nor_init_nor_criproxy_are_killed(tmp_path: Path, pid: int) -> None:
    """Whatever a backend says."""
    put_process(tmp_path, pid, "web", 100)

    found = kill(Processes(tmp_path), Process(pid=pid, start_ticks=100), container_id("web"))

    assert found == f"process {pid} must not be killed"


def test_without_pidfd_the_number_is_compared(
    tmp_path: Path, sleeping: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels before 5.3 have none."""

    def missing(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    put_process(tmp_path, sleeping.pid, "web", 100)
    assert kill(Processes(tmp_path), Process(pid=sleeping.pid, start_ticks=99), container_id("web")) == GONE
    assert kill(Processes(tmp_path), Process(pid=sleeping.pid, start_ticks=100), container_id("web")) == ""
    assert sleeping.wait() == -signal.SIGKILL


def test_the_right_to_kill_is_that_of_the_process() -> None:
    """It is asked of the kernel."""
    assert may_kill() is (os.geteuid() == 0)


def test_the_files_of_a_known_process_are_not_read_again(tmp_path: Path, sleeping: subprocess.Popen[bytes]) -> None:
    """As long as it runs, which its pidfd says; after that, they are read again."""
    put_process(tmp_path, sleeping.pid, "web", Processes().start_ticks(sleeping.pid))
    processes = Processes(tmp_path)
    assert processes.with_known(reading(sleeping.pid)) is None
    found = processes.with_containers(reading(sleeping.pid)).processes
    for name in ("stat", "cgroup"):
        (tmp_path / f"proc/{sleeping.pid}/{name}").unlink()

    known = processes.with_known(reading(sleeping.pid))
    assert known is not None
    assert known.processes == found
    assert found[0].container_id == container_id("web")
    assert processes.with_known(reading(sleeping.pid, 11)) is None
    assert processes.with_known(replace(reading(sleeping.pid), at_s=-1e6)) is None

    sleeping.kill()
    sleeping.wait()
    assert processes.with_known(reading(sleeping.pid)) is None
    assert processes.with_containers(reading(sleeping.pid)).processes[0].container_id == ""


def test_a_process_of_another_pid_namespace_is_read_again(tmp_path: Path, sleeping: subprocess.Popen[bytes]) -> None:
    """Its PID is that of another process here, whose pidfd says nothing about it."""
    put_process(tmp_path, sleeping.pid, "web", LONG_AGO)
    processes = Processes(tmp_path)
    assert processes.with_containers(reading(sleeping.pid)).processes[0].container_id == container_id("web")

    assert processes.with_known(reading(sleeping.pid)) is None


def test_without_pidfds_every_file_is_read_again(
    tmp_path: Path, sleeping: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with too few files that may be open."""
    monkeypatch.setattr(processes_module, "MOST_PIDFDS", 0)
    put_process(tmp_path, sleeping.pid, "web", Processes().start_ticks(sleeping.pid))
    processes = Processes(tmp_path)
    processes.with_containers(reading(sleeping.pid))

    assert processes.with_known(reading(sleeping.pid)) is None


def test_a_process_that_uses_no_card_any_more_is_not_kept(tmp_path: Path, sleeping: subprocess.Popen[bytes]) -> None:
    """Nor is anything left open for a watch that has ended."""
    put_process(tmp_path, sleeping.pid, "web", Processes().start_ticks(sleeping.pid))
    gc.collect()  # event loops of other tests have epolls, too
    before = _open_files()
    processes = Processes(tmp_path)
    processes.with_containers(reading(sleeping.pid))
    assert _open_files() == before + 2  # the pidfd, and the epoll with all of them

    processes.with_containers(reading())
    assert _open_files() == before + 1
    processes.with_containers(reading(sleeping.pid))
    del processes
    assert _open_files() == before


def _open_files() -> int:
    """How many pidfds and epolls are open; what else is, other threads and the collector of garbage change."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += any(kind in str(each.readlink()) for kind in ("pidfd", "eventpoll"))
    return found


ID, OTHER = "0123456789abcdef" * 4, "f" * 64
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1e0f_7a.slice"


@pytest.mark.parametrize(
    ("text", "container"),
    [
        pytest.param(f"0::{POD}/cri-containerd-{ID}.scope\n", ID, id="v2-systemd-containerd"),
        pytest.param(f"0::{POD}/crio-{ID}.scope\n", ID, id="v2-systemd-crio"),
        pytest.param(f"0::{POD}/crio-{ID}.scope/container\n", ID, id="v2-crio-below"),
        pytest.param(f"0::{POD}/docker-{ID}.scope\n", ID, id="v2-systemd-cri-dockerd"),
        pytest.param(f"0::/kubepods/burstable/pod1e0f-7a/{ID}\n", ID, id="v2-cgroupfs"),
        pytest.param(f"0::/kubepods/pod1e0f-7a/crio-{ID}\n", ID, id="v2-cgroupfs-crio"),
        pytest.param(f"0::{POD}/cri-containerd-{ID}.scope/init.scope\n", ID, id="systemd-inside"),
        pytest.param(f"0::/kubepods/pod1/{ID}/docker/{OTHER}\n", ID, id="docker-inside"),
        pytest.param(f"0::/kubepods/pod1/{ID}/kubepods/pod2/{OTHER}\n", ID, id="a-hostile-name-inside"),
        pytest.param(f"0::/../../kubepods/pod1/{ID}\n", ID, id="from-another-namespace"),
        pytest.param(
            f"12:cpuset:/kubepods/pod1/{ID}\n4:memory:/kubepods/pod1/{ID}\n1:name=systemd:/kubepods/pod1/{ID}\n",
            ID,
            id="v1-cgroupfs",
        ),
        pytest.param(f"4:cpu,cpuacct:{POD}/cri-containerd-{ID}.scope\n", ID, id="v1-systemd"),
        pytest.param(
            f"3:memory:/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{ID}\n",
            ID,
            id="v1-systemd-names-without-its-driver",
        ),
        pytest.param(f"2:pids:/\n4:memory:/kubepods/pod1/{ID}\n0::/system.slice/x.service\n", ID, id="v1-hybrid"),
        pytest.param(f"0::{POD}/crio-conmon-{ID}.scope\n", "", id="crio-conmon"),
        pytest.param(f"0::{POD}/cri-containerd-{ID[:-1]}.scope\n", "", id="63-digits"),
        pytest.param(f"0::{POD}/cri-containerd-{ID.upper()}.scope\n", "", id="upper-case"),
        pytest.param(f"0::{POD}/cri-containerd-{ID}.scope (deleted)\n", "", id="deleted"),
        pytest.param(f"0::{POD}\n", "", id="the-pod-itself"),
        pytest.param("0::/system.slice/nvidia-persistenced.service\n", "", id="a-service"),
        pytest.param("0::/\n", "", id="root"),
        pytest.param("", "", id="nothing"),
        pytest.param(f"{ID}\n:::\n0::relative/{ID}\n", "", id="nonsense"),
    ],
)
def test_the_container_is_the_outermost_that_a_cgroup_is_named_after(text: str, container: str) -> None:
    """Whatever is below was made inside, and may have the name of another container."""
    assert container_of(text) == container


@given(st.text())
def test_any_text_has_an_answer(text: str) -> None:
    """The file is the kernel's, and names in it are anybody's."""
    assert len(container_of(text)) in {0, 64}


@given(st.text(st.sampled_from("/:abc0\n"), max_size=20), st.lists(st.text(st.characters(exclude_characters="/\n"))))
def test_nothing_inside_changes_the_owner(before: str, inside: list[str]) -> None:
    """A container may name cgroups below its own as it likes."""
    below = "".join(f"/{part}" for part in inside)

    assert container_of(f"0::/kubepods/pod1/{ID}{below}\n{before}") == ID
