"""The container of a process, by its cgroups as kernels and runtimes write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.usage.processes import container_of

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
