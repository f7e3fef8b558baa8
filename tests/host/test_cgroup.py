"""The pods' parent cgroup is found with either driver and either version."""

from pathlib import Path

import pytest

from criproxy.host import cgroup
from criproxy.host.machine import host_reader
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import Applied
from tests.host.tree import plant

V1, V2 = "sys/fs/cgroup/cpuset", "sys/fs/cgroup"
PODS, V1S, V2S = f"{V1}/kubepods", f"{V1}/kubepods.slice", f"{V2}/kubepods.slice"
ONE = frozenset({1})
ALL = frozenset({0, 1})


@pytest.mark.parametrize(
    ("files", "cpus", "mems", "where"),
    [
        pytest.param({f"{V1}/cpuset.cpus": "0-1", f"{V1}/cpuset.mems": "0"}, ALL, {0}, V1, id="v1-root"),
        pytest.param({f"{V1}/cpuset.cpus": "0-1", f"{PODS}/cpuset.cpus": "1"}, ONE, None, PODS, id="v1-cgroupfs"),
        pytest.param({f"{V1S}/cpuset.cpus": "1", f"{V1S}/cpuset.mems": "0"}, ONE, {0}, V1S, id="v1-systemd"),
        pytest.param({f"{V1}/cpuset.cpus": "0-1", f"{PODS}/cpuset.cpus": "\n"}, ALL, None, V1, id="v1-not-filled-yet"),
        pytest.param({f"{V2S}/cpuset.cpus.effective": "1", f"{V2S}/cpuset.cpus": ""}, ONE, None, V2S, id="v2-systemd"),
        pytest.param({f"{V2S}/x": "", f"{V2}/cpuset.cpus.effective": "0-1"}, ALL, None, V2, id="v2-no-controller"),
        pytest.param(
            {"proc/mounts": "none /cg/two cgroup2 rw 0 0\n", "cg/two/kubepods/cpuset.cpus.effective": "1"},
            ONE,
            None,
            "cg/two/kubepods",
            id="v2-mounted-elsewhere",
        ),
        pytest.param(
            {
                "proc/mounts": "odd line\nnone /cg/cs cgroup rw,cpuset 0 0\nnone /cg/mem cgroup rw,memory 0 0\n",
                "cg/cs/cpuset.cpus": "1",
                "cg/mem/cpuset.cpus": "0",
            },
            ONE,
            None,
            "cg/cs",
            id="v1-mounted-elsewhere",
        ),
        pytest.param(
            {"proc/mounts": "none /dev/cpuset cpuset rw 0 0\n", "dev/cpuset/cpus": "1", "dev/cpuset/mems": "0"},
            ONE,
            {0},
            "dev/cpuset",
            id="older-than-cgroups",
        ),
        pytest.param(
            {"proc/mounts": "none /cg/cs cgroup rw,cpuset,noprefix 0 0\n", "cg/cs/kubepods/cpus": "1"},
            ONE,
            None,
            "cg/cs/kubepods",
            id="v1-without-prefix",
        ),
    ],
)
def test_finds_the_parent(
    tmp_path: Path, files: dict[str, str], cpus: frozenset[int], mems: frozenset[int] | None, where: str
) -> None:
    """The kubelet's parent counts, else the root of the hierarchy."""
    assert cgroup.read_allowed(plant(tmp_path, files)) == cgroup.Allowed(cpus, mems, tmp_path / where)


def test_no_cgroup(tmp_path: Path) -> None:
    """Without a cpuset hierarchy nothing is forbidden."""
    assert cgroup.read_allowed(tmp_path) == cgroup.Allowed(None, None, None)


JOB = {
    "proc/mounts": "none /cg/two cgroup2 rw 0 0\n",
    "cg/two/uid/job/cpuset.cpus.effective": "1",
    "cg/two/uid/job/cpuset.mems.effective": "0",
}
"""A machine recorded from inside a cgroup: of the hierarchy there is only the way to it."""


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param({"proc/self/cpuset": "/uid/job\n"}, id="cpuset"),
        pytest.param({"proc/self/cgroup": "0::/uid/job\n"}, id="cgroup-v2"),
        pytest.param({"proc/self/cgroup": "9:memory:/other\n3:cpuset,cpu:/uid/job\n"}, id="cgroup-v1"),
        pytest.param({"proc/self/cgroup": "0::/\n", "proc/self/cpuset": "/uid/job\n"}, id="only-cpuset-says-it"),
        pytest.param({"proc/self/cpuset": "/uid/job/step/../leaf\n"}, id="nearest-one-above"),
    ],
)
def test_recorded_from_inside_a_cgroup(tmp_path: Path, recorded: dict[str, str]) -> None:
    """Where a recorded machine shows neither pods nor the root, the cgroup it was recorded from bounds the pods."""
    root = plant(tmp_path, JOB | recorded)

    assert cgroup.read_allowed(root) == cgroup.Allowed(ONE, frozenset({0}), tmp_path / "cg/two/uid/job")


def test_never_our_own_cgroup(tmp_path: Path) -> None:
    """On a living system /proc/self is a link to whoever reads it, and says nothing about pods."""
    root = plant(tmp_path, JOB | {"proc/77/cpuset": "/uid/job\n"})
    (root / "proc/self").symlink_to("77")

    assert cgroup.read_allowed(root) == cgroup.Allowed(None, None, None)


def test_pods_come_before_the_recorded_process(tmp_path: Path) -> None:
    """What pods may use is not bounded by where the recording was made, once the hierarchy tells about pods."""
    files = {"cg/two/kubepods/cpuset.cpus.effective": "0-1", "proc/self/cpuset": "/uid/job\n"}

    assert cgroup.read_allowed(plant(tmp_path, JOB | files)).cpus == ALL


@pytest.mark.parametrize("name", ["mine/pods", "/mine/pods", "cg/two/mine/pods", "/cg/two/mine/pods"])
def test_one_cgroup_by_name(tmp_path: Path, name: str) -> None:
    """A path counts from the mount of the hierarchy or from the root of the machine."""
    mount = {"proc/mounts": "none /cg/two cgroup2 rw 0 0\n"}
    root = plant(tmp_path, mount | {"cg/two/mine/pods/cpuset.cpus.effective": "1", "cg/two/mine/empty/cpuset.cpus": ""})

    assert cgroup.read_cgroup(root, name) == ONE
    assert cgroup.read_cgroup(root, name.replace("pods", "empty")) is None
    assert cgroup.read_cgroup(root, "none") is None


@pytest.mark.parametrize("name", ["/pods/volume", "/cg/two/../../pods/volume", "../../pods/volume", "mine/link"])
def test_only_a_cgroup_is_read(tmp_path: Path, name: str) -> None:
    """Who may write policies, and has a pod with a volume, makes criproxy read no pipe and no endless file."""
    root = plant(tmp_path, {"proc/mounts": "none /cg/two cgroup2 rw 0 0\n", "pods/volume/cpuset.cpus.effective": "1"})
    (root / "cg/two/mine").mkdir(parents=True)
    (root / "cg/two/mine/link").symlink_to(root / "pods/volume")

    assert cgroup.read_cgroup(root, name) is None


def test_a_name_that_is_no_path_names_no_cgroup_and_no_device(tmp_path: Path) -> None:
    """A link that leads to itself, and characters that no path can have."""
    root = plant(tmp_path, {"proc/mounts": "none /cg/two cgroup2 rw 0 0\n", "cg/two/cpuset.cpus.effective": "1"})
    for folder in ("cg/two", "sys/class/net", "tmp"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "loop").symlink_to("loop")

    for name in ("loop", "/tmp/loop", "a\0b", "\ud800"):
        assert cgroup.read_cgroup(root, name) is None, name
    for path in ("/sys/class/net/loop", "/sys/class/net/loop/eth0", "/sys/a\0b", "/sys/\ud800"):
        assert cgroup.read_device(root, path) is None, path


# ---------------------------------------------------------------- devices by their paths in sysfs


CARD = "sys/devices/pci0000:3a/0000:3a:00.0"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A network card that says which CPUs are near, one that knows its NUMA node only, and a loop device: nowhere."""
    other = "sys/devices/pci0000:80/0000:80:02.0"
    for folder in (f"{CARD}/net/eth0", f"{other}/net/eth1", "sys/devices/virtual/block/loop0", "sys/class/net"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / CARD / "local_cpulist").write_text("4-7\n")
    (tmp_path / other / "numa_node").write_text("2\n")
    (tmp_path / "sys/devices/virtual/block/loop0/numa_node").write_text("-1\n")
    node = tmp_path / "sys/devices/system/node/node2"
    node.mkdir(parents=True)
    (node / "cpulist").write_text("8-11\n")
    for name, card in (("eth0", CARD), ("eth1", other)):
        (tmp_path / "sys/class/net" / name).symlink_to(Path("../..") / card.removeprefix("sys/") / "net" / name)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "cpus"),
    [
        pytest.param("/sys/class/net/eth0", "4-7", id="by-class"),
        pytest.param(f"/{CARD}", "4-7", id="by-address"),
        pytest.param("/sys/class/net/eth1", "8-11", id="by-numa-node"),
        pytest.param("/sys/devices/virtual/block/loop0", None, id="nowhere"),
        pytest.param("/sys/class/net/eth7", None, id="not-there"),
        pytest.param(f"/{CARD}/net/eth7", None, id="not-there-either"),
        pytest.param("/sys/../etc", None, id="elsewhere"),
    ],
)
def test_cpus_next_to_a_device(host: Path, path: str, cpus: str | None) -> None:
    """Its own list, that of what it is a part of, or its NUMA node's; nothing where nobody knows."""
    (host / "etc").mkdir()
    found = cgroup.read_device(host, path)

    assert (None if found is None else format_cpuset(found), host_reader(host).device(path)) == (cpus, found)


# ---------------------------------------------------------------- the cgroup of a container


OF_V1 = "9:name=systemd:/x\n3:cpuset:{path}\n0::/\n"
JOINED = "4:cpu,cpuset:{path}\n"
OF_V2 = "0::{path}\n"


def process(root: Path, membership: str, group: str, suffix: str = "") -> None:
    """A process 7 with that membership, and a cgroup with CPU 1 and 2 of NUMA node 0."""
    folder = f"sys/fs/cgroup/{group}"
    sets = {f"{folder}/cpuset.cpus{suffix}": "1-2\n", f"{folder}/cpuset.mems{suffix}": "0\n"}
    plant(root, {"proc/7/cgroup": "", **sets})
    (root / "proc/7/cgroup").write_bytes(membership.encode(errors="surrogateescape"))


@pytest.mark.parametrize(
    ("lines", "path", "group", "suffix"),
    [
        pytest.param(OF_V1, "/kubepods/pod1/abc", "cpuset/kubepods/pod1/abc", "", id="v1"),
        pytest.param(JOINED, "/kubepods/pod1/abc", "cpuset/kubepods/pod1/abc", "", id="v1-joined-controllers"),
        pytest.param(OF_V2, "/kubepods.slice/cri-containerd-abc.scope", "kubepods.slice/cri-containerd-abc.scope",
                     ".effective", id="v2-systemd"),
        pytest.param(OF_V2, "/k/crio-abc.scope/init.scope", "k/crio-abc.scope", ".effective", id="group-inside"),
        pytest.param(OF_V2, "/k/abc/a\f\r\x1c\x85\u2028b/\udcff/c", "k/abc", ".effective", id="any-names-inside"),
        pytest.param(OF_V1, "/k/abc/a\r1:cpuset:/x/abc", "cpuset/k/abc", "", id="a-line-inside"),
        pytest.param(OF_V2, "/k/abc/x-abc", "k/abc", ".effective", id="its-id-again-inside"),
    ],
)  # fmt: skip
def test_the_group_is_the_one_with_the_containers_id(
    tmp_path: Path, lines: str, path: str, group: str, suffix: str
) -> None:
    """Also where the process has moved into a group of its own below it."""
    process(tmp_path, lines.format(path=path), group, suffix)

    assert cgroup.find_group(tmp_path, 7, "abc").read() == Applied(frozenset({1, 2}), frozenset({0}), lifted=None)


@pytest.mark.parametrize(
    ("lines", "file", "content", "expected"),
    [
        pytest.param(OF_V1, "cpu/k/abc/cpu.cfs_quota_us", "-1\n", True, id="v1-none"),
        pytest.param(OF_V1, "cpu/k/abc/cpu.cfs_quota_us", "200000\n", False, id="v1-limited"),
        pytest.param(OF_V1, "cpu/k/other/cpu.cfs_quota_us", "-1\n", None, id="v1-without-the-controller"),
        pytest.param(OF_V2, "k/abc/cpu.max", "max 100000\n", True, id="v2-none"),
        pytest.param(OF_V2, "k/abc/cpu.max", "200000 100000\n", False, id="v2-limited"),
        pytest.param(OF_V2, "k/abc/cpu.weight", "1\n", None, id="v2-without-the-controller"),
        pytest.param(OF_V2, "k/abc/cpu.max", "", None, id="nothing-written"),
    ],
)
def test_the_quota_is_read_beside_it(
    tmp_path: Path, lines: str, file: str, content: str, *, expected: bool | None
) -> None:
    """In the group of the same name of the other controller, or with cgroup v2 in the very same one."""
    name, suffix = ("k/abc", ".effective") if lines is OF_V2 else ("cpuset/k/abc", "")
    process(tmp_path, lines.format(path="/k/abc"), name, suffix)
    plant(tmp_path / "sys/fs/cgroup", {file: content})

    assert cgroup.find_group(tmp_path, 7, "abc").read().lifted is expected


def test_the_process_of_another_is_not_taken_for_the_containers(tmp_path: Path) -> None:
    """A pid that was given to somebody else meanwhile says nothing of the container."""
    process(tmp_path, OF_V1.format(path="/kubepods/pod1/other"), "cpuset/kubepods/pod1/other")

    with pytest.raises(LookupError, match="abc"):
        cgroup.find_group(tmp_path, 7, "abc")


def test_a_process_that_is_gone_is_an_os_error(tmp_path: Path) -> None:
    """The caller asks the runtime then."""
    with pytest.raises(FileNotFoundError):
        cgroup.find_group(tmp_path, 7, "abc")


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
    plant(tmp_path / "k/abc", files)

    assert cgroup.has_processes(cgroup.ContainerGroup(str(tmp_path), "k/abc", unified=True)) is expected


ROOT = "sys/fs/cgroup"
CONTROLLERS = {
    f"{ROOT}/cgroup.controllers": "cpuset cpu io memory pids\n",
    f"{ROOT}/cpu.stat": "",
    f"{ROOT}/io.stat": "",
}
MEMORY = {"memory.high", "memory.low", "memory.min", "memory.oom.group"}
CPU, IO = {"cpu.weight", "cpu.max.burst"}, {"io.stat", "io.max"}
NO_MEMORY = {"cpu.idle", "cpu.max.burst", "cpu.uclamp.max", "cpu.uclamp.min", "cpu.weight"}
NO_MEMORY |= {"io.bfq.weight", "io.max", "io.weight"}


def group(name: str, files: set[str]) -> dict[str, str]:
    """A cgroup with these files."""
    return {f"{ROOT}/{name}/{file}": "" for file in (*files, "cgroup.procs", "cpu.stat")}


INIT, NO_CONTROLLER = group("init.scope", set()), {f"{ROOT}/cgroup.controllers": "cpu io\n"}


@pytest.mark.parametrize(
    ("tree", "expected", "is_assumed"),
    [
        pytest.param(group("kubepods.slice", MEMORY | CPU | IO), MEMORY | CPU | {"io.max"}, False, id="pods"),
        pytest.param(INIT | group("kubepods", MEMORY | CPU | IO), MEMORY | CPU | {"io.max"}, False, id="kubelets"),
        pytest.param(INIT | group("system.slice", MEMORY), MEMORY | NO_MEMORY, True, id="a-node-that-boots"),
        pytest.param(group("a", MEMORY) | group("b", CPU | IO), MEMORY | CPU | {"io.max"}, False, id="each-elsewhere"),
        pytest.param(group("a", CPU | IO) | NO_CONTROLLER, CPU | {"io.max"}, False, id="no-memory-controller"),
        pytest.param({}, MEMORY | {"memory.swap.max"} | NO_MEMORY, True, id="only-the-root"),
    ],
)
def test_the_files_of_classes(tmp_path: Path, tree: dict[str, str], expected: set[str], is_assumed: bool) -> None:
    """A cgroup shows those of a controller if it has the controller; what none shows yet may be there."""
    found = cgroup.read_control_files(plant(tmp_path, CONTROLLERS | tree))

    assert found == cgroup.ControlFiles(frozenset(expected), is_assumed)


def test_the_files_of_classes_with_cgroup_v1_or_without_cgroups(tmp_path: Path) -> None:
    """There are none; of a machine without any cgroup, nothing is known."""
    assert cgroup.read_control_files(tmp_path) is None
    assert cgroup.read_control_files(plant(tmp_path, {f"{ROOT}/memory/tasks": ""})) == cgroup.ControlFiles(frozenset())
