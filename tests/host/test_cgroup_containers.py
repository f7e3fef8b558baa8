"""Finding and reading the cpuset cgroup of a container, for both versions of cgroups."""

from pathlib import Path

import pytest

from criproxy.host.cgroup import ContainerGroup, find_group, has_processes
from criproxy.model.grant import Applied

V1 = "9:name=systemd:/x\n3:cpuset:{path}\n0::/\n"
JOINED = "4:cpu,cpuset:{path}\n"
V2 = "0::{path}\n"


def host(root: Path, membership: str, group: str, suffix: str = "") -> None:
    """A process 7 with that membership, and a cgroup with CPU 1 and 2 of NUMA node 0."""
    (root / "proc/7").mkdir(parents=True)
    (root / "proc/7/cgroup").write_text(membership)
    folder = root / "sys/fs/cgroup" / group
    folder.mkdir(parents=True)
    (folder / f"cpuset.cpus{suffix}").write_text("1-2\n")
    (folder / f"cpuset.mems{suffix}").write_text("0\n")


@pytest.mark.parametrize(
    ("lines", "path", "group", "suffix"),
    [
        pytest.param(V1, "/kubepods/pod1/abc", "cpuset/kubepods/pod1/abc", "", id="v1"),
        pytest.param(JOINED, "/kubepods/pod1/abc", "cpuset/kubepods/pod1/abc", "", id="v1-joined-controllers"),
        pytest.param(V2, "/kubepods.slice/cri-containerd-abc.scope", "kubepods.slice/cri-containerd-abc.scope",
                     ".effective", id="v2-systemd"),
        pytest.param(V2, "/k/crio-abc.scope/init.scope", "k/crio-abc.scope", ".effective", id="group-inside"),
    ],
)  # fmt: skip
def test_the_group_is_the_one_with_the_containers_id(
    tmp_path: Path, lines: str, path: str, group: str, suffix: str
) -> None:
    """Also where the process has moved into a group of its own below it."""
    host(tmp_path, lines.format(path=path), group, suffix)

    assert find_group(tmp_path, 7, "abc").read() == Applied(frozenset({1, 2}), frozenset({0}), lifted=None)


@pytest.mark.parametrize(
    ("lines", "file", "content", "expected"),
    [
        pytest.param(V1, "cpu/k/abc/cpu.cfs_quota_us", "-1\n", True, id="v1-none"),
        pytest.param(V1, "cpu/k/abc/cpu.cfs_quota_us", "200000\n", False, id="v1-limited"),
        pytest.param(V1, "cpu/k/other/cpu.cfs_quota_us", "-1\n", None, id="v1-without-the-controller"),
        pytest.param(V2, "k/abc/cpu.max", "max 100000\n", True, id="v2-none"),
        pytest.param(V2, "k/abc/cpu.max", "200000 100000\n", False, id="v2-limited"),
        pytest.param(V2, "k/abc/cpu.weight", "1\n", None, id="v2-without-the-controller"),
        pytest.param(V2, "k/abc/cpu.max", "", None, id="nothing-written"),
    ],
)
def test_the_quota_is_read_beside_it(
    tmp_path: Path, lines: str, file: str, content: str, *, expected: bool | None
) -> None:
    """In the group of the same name of the other controller, or with cgroup v2 in the very same one."""
    unified = lines is V2
    host(tmp_path, lines.format(path="/k/abc"), "k/abc" if unified else "cpuset/k/abc", ".effective" if unified else "")
    limits = tmp_path / "sys/fs/cgroup" / file
    limits.parent.mkdir(parents=True, exist_ok=True)
    limits.write_text(content)

    assert find_group(tmp_path, 7, "abc").read().lifted is expected


def test_the_process_of_another_is_not_taken_for_the_containers(tmp_path: Path) -> None:
    """A pid that was given to somebody else meanwhile says nothing of the container."""
    host(tmp_path, V1.format(path="/kubepods/pod1/other"), "cpuset/kubepods/pod1/other")

    with pytest.raises(LookupError, match="abc"):
        find_group(tmp_path, 7, "abc")


def test_a_process_that_is_gone_is_an_os_error(tmp_path: Path) -> None:
    """The caller asks the runtime then."""
    with pytest.raises(FileNotFoundError):
        find_group(tmp_path, 7, "abc")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"cgroup.procs": "7\n"}, True, id="its-own"),
        pytest.param({"cgroup.procs": "", "init.scope/cgroup.procs": "7\n"}, True, id="systemd-inside"),
        pytest.param({"cgroup.procs": "", "init.scope/cgroup.procs": ""}, False, id="none"),
        pytest.param({}, False, id="gone"),
    ],
)
def test_processes_below_it_are_the_containers_too(tmp_path: Path, files: dict[str, str], *, expected: bool) -> None:
    """With systemd in a container, none is in the container's own group."""
    for name, content in files.items():
        (tmp_path / "k/abc" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "k/abc" / name).write_text(content)

    assert has_processes(ContainerGroup(str(tmp_path), "k/abc", unified=True)) is expected
