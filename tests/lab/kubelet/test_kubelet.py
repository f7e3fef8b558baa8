"""The messages of the small kubelet: what reference/kubelet.md says the real one sends."""

import pytest

from criproxy.cri import translate
from lab.kubelet.kubelet import ContainerSpec, PodSpec, container_config, container_resources, sandbox_config

GIB = 1 << 30
WHOLE = ContainerSpec("c", "busybox", cpu_limit_milli=1000, memory_limit_bytes=GIB)
HALF = ContainerSpec("h", "busybox", cpu_request_milli=500)
NOTHING = ContainerSpec("n", "busybox")


@pytest.mark.parametrize(
    ("containers", "qos", "parent"),
    [
        pytest.param((WHOLE,), "Guaranteed", "/kubepods/podU", id="limits-only-make-requests"),
        pytest.param((WHOLE, HALF), "Burstable", "/kubepods/burstable/podU", id="one-without-limit"),
        pytest.param((WHOLE, NOTHING), "Burstable", "/kubepods/burstable/podU", id="one-that-asks-nothing"),
        pytest.param((NOTHING,), "BestEffort", "/kubepods/besteffort/podU", id="nothing-asked"),
        pytest.param((), "BestEffort", "/kubepods/besteffort/podU", id="no-containers"),
    ],
)
def test_class_and_cgroup_follow_from_requests_and_limits(
    containers: tuple[ContainerSpec, ...], qos: str, parent: str
) -> None:
    """The class is Kubernetes' own, and the path of the pod's cgroup tells it."""
    pod = PodSpec("p", containers, given_uid="U")

    assert pod.qos == qos
    assert pod.cgroup_parent() == parent
    assert pod.cgroup_parent("/node") == f"/node{parent}"


@pytest.mark.parametrize(
    ("spec", "parent"),
    [
        (WHOLE, "/kubepods.slice/kubepods-poda_b.slice"),
        (HALF, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice"),
        (NOTHING, "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice"),
    ],
    ids=["Guaranteed", "Burstable", "BestEffort"],
)
def test_systemds_names_are_those_of_the_kubelet(spec: ContainerSpec, parent: str) -> None:
    """A slice is named by all above it, a dash in a UID is an underscore, and the class can be read back."""
    pod = PodSpec("p", (spec,), given_uid="a-b")

    assert pod.cgroup_parent("/", "systemd") == parent
    assert translate.qos_class(parent).value == pod.qos


def test_a_container_carries_what_the_kubelet_writes() -> None:
    """Labels name the pod and the container, annotations carry hash and restart count, resources the size."""
    pod = PodSpec("p", (WHOLE,), annotations={"user": "1"}, labels={"app": "x"}, given_uid="U")

    sandbox, config = sandbox_config(pod), container_config(pod, WHOLE, 8 * GIB, attempt=2)

    assert dict(sandbox.annotations) == {"user": "1"}
    assert sandbox.labels["app"] == "x"
    assert dict(config.labels) == {
        "io.kubernetes.pod.name": "p",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": "U",
        "io.kubernetes.container.name": "c",
    }
    assert config.metadata.attempt == 2
    assert config.annotations["io.kubernetes.container.restartCount"] == "2"
    assert config.linux.resources == container_resources(pod, WHOLE, 8 * GIB)
    assert config.linux.resources.cpu_quota == 100_000
    assert config.linux.resources.memory_limit_in_bytes == sandbox.linux.resources.memory_limit_in_bytes == GIB
