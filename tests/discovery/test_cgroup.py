"""The pods' parent cgroup is found with either driver and either version."""

from pathlib import Path

import pytest

from criproxy.discovery.cgroup import Allowed, read_allowed
from tests.discovery.tree import plant

V1, V2 = "sys/fs/cgroup/cpuset", "sys/fs/cgroup"
ONE = frozenset({1})
ALL = frozenset({0, 1})


@pytest.mark.parametrize(
    ("files", "cpus", "mems", "where"),
    [
        pytest.param({f"{V1}/cpuset.cpus": "0-1", f"{V1}/cpuset.mems": "0"}, ALL, {0}, V1, id="v1-root"),
        pytest.param(
            {f"{V1}/cpuset.cpus": "0-1", f"{V1}/kubepods/cpuset.cpus": "1"},
            ONE,
            None,
            f"{V1}/kubepods",
            id="v1-cgroupfs",
        ),
        pytest.param(
            {f"{V1}/kubepods.slice/cpuset.cpus": "1", f"{V1}/kubepods.slice/cpuset.mems": "0"},
            ONE,
            {0},
            f"{V1}/kubepods.slice",
            id="v1-systemd",
        ),
        pytest.param(
            {f"{V1}/cpuset.cpus": "0-1", f"{V1}/kubepods/cpuset.cpus": "\n"}, ALL, None, V1, id="v1-not-filled-yet"
        ),
        pytest.param(
            {f"{V2}/kubepods.slice/cpuset.cpus.effective": "1", f"{V2}/kubepods.slice/cpuset.cpus": ""},
            ONE,
            None,
            f"{V2}/kubepods.slice",
            id="v2-systemd",
        ),
        pytest.param(
            {f"{V2}/kubepods.slice/x": "", f"{V2}/cpuset.cpus.effective": "0-1"}, ALL, None, V2, id="v2-no-controller"
        ),
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
    ],
)
def test_finds_the_parent(
    tmp_path: Path, files: dict[str, str], cpus: frozenset[int], mems: frozenset[int] | None, where: str
) -> None:
    """The kubelet's parent counts, else the root of the hierarchy."""
    assert read_allowed(plant(tmp_path, files)) == Allowed(cpus, mems, tmp_path / where)


def test_no_cgroup(tmp_path: Path) -> None:
    """Without a cpuset hierarchy nothing is forbidden."""
    assert read_allowed(tmp_path) == Allowed(None, None, None)
