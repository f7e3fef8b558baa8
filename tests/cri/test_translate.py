"""Messages as the kubelet, crictl and strangers send them, read into the model."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.errors import StatusCode
from criproxy.model.grant import Applied
from criproxy.model.resources import CfsQuota, Interval
from criproxy.model.workload import ContainerState, QosClass
from lab.kubelet.kubelet import ContainerSpec, PodSpec, container_config, sandbox_config

GIB = 1 << 30


@pytest.mark.parametrize(
    ("cgroup_parent", "oom_score_adj", "expected"),
    [
        pytest.param("/kubepods/pod1", 0, "Guaranteed", id="cgroupfs-guaranteed"),
        pytest.param("/kubepods/burstable/pod1", 0, "Burstable", id="cgroupfs-burstable"),
        pytest.param("/kubepods/besteffort/pod1/", 0, "BestEffort", id="cgroupfs-besteffort"),
        pytest.param("/root/of/node/kubepods/burstable/pod1", 0, "Burstable", id="cgroupfs-below-a-root"),
        pytest.param("/kubepods.slice/kubepods-pod1.slice", 0, "Guaranteed", id="systemd-guaranteed"),
        pytest.param("kubepods-burstable-pod1_2.slice", 0, "Burstable", id="systemd-slice-alone"),
        pytest.param(
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice", 0, "BestEffort", id="systemd"
        ),
        pytest.param("/a.slice/a-kubepods-burstable-pod1.slice", 0, "Burstable", id="systemd-below-a-root"),
        pytest.param("/kubepods/pod1", 1000, "Guaranteed", id="the-path-wins"),
        pytest.param("", -997, "Guaranteed", id="score-guaranteed"),
        pytest.param("", 3, "Burstable", id="score-burstable"),
        pytest.param("", 999, "Burstable", id="score-burstable-smallest"),
        pytest.param("", 1000, "BestEffort", id="score-besteffort"),
        pytest.param("", 0, "BestEffort", id="crictl"),
        pytest.param("/podman/pod1", -500, "BestEffort", id="not-of-kubernetes"),
    ],
)
def test_class_comes_from_the_cgroup_else_from_the_score(cgroup_parent: str, oom_score_adj: int, expected: str) -> None:
    """Both cgroup drivers' notations are read, with anything in front."""
    assert translate.qos_class(cgroup_parent, oom_score_adj) is QosClass(expected)


def create(pod: PodSpec, spec: ContainerSpec) -> api.CreateContainerRequest:
    """The request of a kubelet on a node with 8 GiB."""
    config = container_config(pod, spec, 8 * GIB, attempt=3)
    return api.CreateContainerRequest(pod_sandbox_id="s", config=config, sandbox_config=sandbox_config(pod))


def test_a_container_of_the_kubelet_is_read_in_full() -> None:
    """Names, attempt, class, request and limits are as the pod's author wrote them."""
    spec = ContainerSpec("c", "i", cpu_request_milli=250, cpu_limit_milli=1500, memory_limit_bytes=GIB)
    pod = PodSpec("p", (spec,), namespace="n", given_uid="u")
    request = create(pod, spec)

    container = translate.container(request, "r")

    assert (container.key, container.reservation, container.pod) == ("r", "r", "s")
    assert (container.namespace, container.pod_name, container.name, container.attempt) == ("n", "p", "c", 3)
    assert (container.qos, container.cpu_milli, container.cpu_limit_milli) == (QosClass.BURSTABLE, 250, 1500)
    assert container.memory_limit_bytes == GIB
    assert container.state is ContainerState.CREATING
    read_pod = translate.pod(request.sandbox_config, "s")
    assert (read_pod.key, read_pod.uid, read_pod.name, read_pod.qos) == ("s", "u", "p", QosClass.BURSTABLE)


def test_an_empty_request_is_a_container_without_wishes() -> None:
    """Nil resources, no labels and no sandbox configuration are no error."""
    container = translate.container(api.CreateContainerRequest(), "r")

    assert (container.qos, container.cpu_milli) == (QosClass.BEST_EFFORT, 0)
    assert (container.cpu_limit_milli, container.memory_limit_bytes) == (None, None)


@pytest.mark.parametrize(
    ("request_bytes", "limit_bytes"),
    [
        pytest.param(GIB, 0, id="no-limit"),
        pytest.param(GIB, 4 * GIB, id="below-the-limit"),
        pytest.param(GIB, GIB + 1, id="limit-within-the-interval"),
        pytest.param(8 * GIB, 0, id="everything"),
    ],
)
def test_a_burstable_memory_request_is_an_interval(request_bytes: int, limit_bytes: int) -> None:
    """It holds what the pod's author wrote, is at most the limit, and is a thousandth of the node wide."""
    spec = ContainerSpec(
        "c", "i", cpu_request_milli=100, memory_request_bytes=request_bytes, memory_limit_bytes=limit_bytes
    )

    found = translate.container(create(PodSpec("p", (spec,)), spec), "r", 8 * GIB).memory_request_bytes

    assert found is not None
    assert found.low <= request_bytes <= found.high
    assert found.high - found.low <= 8 * GIB // 1000 + 1 or request_bytes == 8 * GIB
    assert not limit_bytes or found.high <= limit_bytes


def test_other_memory_requests() -> None:
    """It is exact for Guaranteed containers, and not known without the node's memory or a request."""
    fixed = ContainerSpec("c", "i", cpu_limit_milli=500, memory_limit_bytes=GIB + 5)
    burstable = ContainerSpec("c", "i", cpu_request_milli=100, memory_request_bytes=GIB)
    nothing = ContainerSpec("c", "i")

    def read(spec: ContainerSpec, capacity_bytes: int) -> Interval | None:
        return translate.container(create(PodSpec("p", (spec,)), spec), "r", capacity_bytes).memory_request_bytes

    assert read(fixed, 8 * GIB) == read(fixed, 0) == Interval(GIB + 5, GIB + 5)
    assert read(burstable, 0) is None
    assert read(nothing, 8 * GIB) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_clear_error(data: bytes) -> None:
    """Nothing but `UnreadableMessage` comes out."""
    with suppress(translate.UnreadableMessage):
        translate.container(translate.read(api.CreateContainerRequest, data), "r")


def test_the_error_names_the_message_that_the_bytes_should_have_been() -> None:
    """So that a log line tells which call was odd."""
    with pytest.raises(translate.UnreadableMessage, match=r"^these 1 bytes are no runtime\.v1\.CreateC") as caught:
        translate.read(api.CreateContainerRequest, b"\x0f")

    assert caught.value.code is StatusCode.INVALID_ARGUMENT


def status(resources: api.LinuxContainerResources, cgroup: str = "") -> api.ContainerStatusResponse:
    """The verbose status of a running container as containerd gives it."""
    info = json.dumps({"pid": 1, "runtimeSpec": {"linux": {"cgroupsPath": cgroup}}})
    reply = api.ContainerStatusResponse(info={"info": info})
    reply.status.state = api.CONTAINER_RUNNING
    reply.status.resources.linux.CopyFrom(resources)
    return reply


def stamped(request: api.CreateContainerRequest) -> api.Container:
    """A listed container that was created with a *request*."""
    text = translate.stamp_of(translate.container(request, "r-1")).to_text()
    metadata = api.ContainerMetadata(name="c", attempt=3)
    return api.Container(id="x", pod_sandbox_id="s", metadata=metadata, annotations={"criproxy/placement": text})


def test_a_listed_container_is_who_its_stamp_says() -> None:
    """A container of ours has its reservation, class and size back, but for a size that the runtime tells since."""
    spec = ContainerSpec("c", "i", cpu_limit_milli=2000, memory_limit_bytes=GIB)
    request = create(PodSpec("p", (spec,)), spec)
    resized = api.LinuxContainerResources(cpu_shares=3072, cpu_quota=300_000, cpu_period=100_000)

    found = translate.found_container(stamped(request), status(api.LinuxContainerResources()))
    now = translate.found_container(stamped(request), status(resized))

    assert (found.key, found.reservation, found.state) == ("x", "r-1", ContainerState.RUNNING)
    assert (found.qos, found.sizes) == (QosClass.GUARANTEED, translate.container(request, "r-1").sizes)
    assert (now.cpu_milli, now.cpu_limit_milli, now.memory_limit_bytes) == (3000, 3000, GIB)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param({"cpu_shares": 2048}, CfsQuota(100_001, 50_000), id="as-created"),
        pytest.param({}, CfsQuota(100_001, 50_000), id="shares-untold"),
        pytest.param({"cpu_shares": 3072}, CfsQuota(150_000, 50_000), id="resized"),
    ],
)
def test_a_lifted_quota_hides_nothing_that_was_asked(now: dict[str, int], expected: CfsQuota) -> None:
    """Where no quota is in force, the stamp says what was asked; after a resize, the request is the limit."""
    request = api.CreateContainerRequest()
    request.sandbox_config.linux.cgroup_parent = "/kubepods/podx"
    asked = api.LinuxContainerResources(cpu_shares=2048, cpu_quota=100_001, cpu_period=50_000)
    request.config.linux.resources.CopyFrom(asked)
    lifted = api.LinuxContainerResources(cpu_quota=-1, cpu_period=50_000, **now)  # type: ignore[arg-type]

    found = translate.found_container(stamped(request), status(lifted, "/kubepods/podx/x"))

    assert (found.cpu_quota, found.asked_quota) == (expected, expected)
    assert translate.found_container(api.Container(id="y"), status(lifted)).asked_quota is None


def test_an_old_stamp_tells_the_limit() -> None:
    """A stamp from before quotas were kept says the limit, and so what the kubelet sent at its usual period."""
    text = '{"reservation":"r","qos":"Guaranteed","cpu_milli":2000,"cpu_limit_milli":2000}'
    item = api.Container(id="x", annotations={"criproxy/placement": text})

    found = translate.found_container(item, status(api.LinuxContainerResources(cpu_quota=-1)))

    assert found.asked_quota == CfsQuota(200_000, 100_000)


def test_a_container_without_a_stamp_is_read_from_its_sizes() -> None:
    """Class by the cgroup's path, request and limits by the resources in force: as at its create."""
    spec = ContainerSpec("c", "i", cpu_request_milli=300, memory_request_bytes=GIB, memory_limit_bytes=2 * GIB)
    pod = PodSpec("p", (spec,), given_uid="u")
    request = create(pod, spec)
    path = f"{pod.cgroup_parent()}/x"

    found = translate.found_container(api.Container(id="x"), status(request.config.linux.resources, path), 8 * GIB)

    assert found.sizes == translate.container(request, "r", 8 * GIB).sizes
    assert (found.reservation, found.qos) == ("", QosClass.BURSTABLE)
    assert translate.found_container(api.Container(id="y"), api.ContainerStatusResponse()).cpu_milli == 0


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ('{"runtimeSpec":{"linux":{"cgroupsPath":"/kubepods/burstable/pod1/x"}}}', "/kubepods/burstable/pod1"),
        (
            '{"runtimeSpec":{"linux":{"cgroupsPath":"kubepods-burstable-pod1_2.slice:cri-containerd:x"}}}',
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice",
        ),
        ('{"runtimeSpec":{"linux":{"cgroupsPath":7}}}', ""),
        ('{"runtimeSpec":{"linux":null}}', ""),
        ('{"runtimeSpec":[]}', ""),
        ("[]", ""),
        ("not valid JSON", ""),
        ("[" * 200_000, ""),
    ],
)
def test_the_cgroup_of_the_pod_is_read_from_the_specification(info: str, expected: str) -> None:
    """Both cgroup drivers' notations become that of a sandbox configuration; what is not there is no error."""
    assert (translate.cgroup_parent_in({"info": info}), translate.cgroup_parent_in({})) == (expected, "")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/kubepods/burstable/pod1/x", "/kubepods/burstable/pod1/x"),
        ("kubepods-pod1.slice:cri-containerd:x", "/kubepods.slice/kubepods-pod1.slice/cri-containerd-x.scope"),
        ("", ""),
    ],
)
def test_the_cgroup_of_a_container_is_read_from_the_specification(path: str, expected: str) -> None:
    """As a path below the mount, for both cgroup drivers: there the kernel has what runs."""
    info = json.dumps({"runtimeSpec": {"linux": {"cgroupsPath": path}}})
    assert (translate.cgroup_in({"info": info}), translate.cgroup_in({})) == (expected, "")


@pytest.mark.parametrize(
    ("cpus", "mems", "expected"),
    [
        ("0-1", "0", Applied(frozenset({0, 1}), frozenset({0}), lifted=None)),
        ("3", "", Applied(frozenset({3}), frozenset(), lifted=None)),
        ("", "0", None),
        ("nonsense", "0", None),
    ],
)
def test_the_reported_cpuset_counts_only_if_it_can_be_read(cpus: str, mems: str, expected: Applied | None) -> None:
    """A runtime that reports nothing, or nonsense, tells nothing."""
    status = api.ContainerStatus()
    status.resources.linux.cpuset_cpus, status.resources.linux.cpuset_mems = cpus, mems

    assert translate.applied(status) == expected


def test_a_state_of_the_future_may_run() -> None:
    """What cannot be told to be created or exited counts as possibly running."""
    assert translate.state(api.Container(state=api.CONTAINER_UNKNOWN)) is ContainerState.UNKNOWN


def test_a_pod_keeps_its_labels_and_the_annotations_that_a_policy_may_read() -> None:
    """The same from the configuration of a sandbox as from a list; other annotations may be secrets."""
    labels = {"app": "web"}
    annotations = {"memory-type.criproxy.io/pod": "dram", "vault.example.com/token": "s3cret"}
    config = api.PodSandboxConfig(labels=labels, annotations=annotations)
    item = api.PodSandbox(id="s", labels=labels, annotations=annotations)
    for pod in (translate.pod(config, "s"), translate.found_pod(item)):
        assert (pod.labels, pod.annotations) == (labels, {"memory-type.criproxy.io/pod": "dram"})


@pytest.mark.parametrize(
    ("resources", "total_milli", "cap_milli"),
    [
        pytest.param(api.LinuxContainerResources(), 0, None, id="nothing-said"),
        pytest.param(api.LinuxContainerResources(cpu_shares=2), 2, None, id="no-request"),
        pytest.param(api.LinuxContainerResources(cpu_shares=1228, cpu_quota=120_000), 1200, 1200, id="exact"),
        pytest.param(api.LinuxContainerResources(cpu_shares=262_144), 256_000, None, id="256-CPUs-or-more"),
        pytest.param(
            api.LinuxContainerResources(cpu_shares=262_144, cpu_quota=30_000_000, cpu_period=100_000),
            300_000,
            None,
            id="300-CPUs-by-its-quota",
        ),
    ],
)
def test_a_sandbox_says_the_total_of_its_pod(
    resources: api.LinuxContainerResources, total_milli: int, cap_milli: int | None
) -> None:
    """In milli; it is a cap only where it is known exactly."""
    pod = translate.pod(api.PodSandboxConfig(linux=api.LinuxPodSandboxConfig(resources=resources)), "s")

    assert (pod.cpu_total_milli, pod.cap_milli) == (total_milli, cap_milli)


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"info": '{"pid": 42, "sandboxID": "s"}'}, 42),
        ({"info": '{"pid": 0}'}, None),
        ({"info": '{"pid": "42"}'}, None),
        ({"info": "[]"}, None),
        ({"info": "{"}, None),
        ({}, None),
    ],
)
def test_the_pid_is_taken_only_from_notes_that_have_one(info: dict[str, str], expected: int | None) -> None:
    """Runtimes may say what they like there."""
    assert translate.pid_in(info) == expected


@pytest.mark.parametrize(
    ("cpu", "wanted"),
    [
        pytest.param({"cpus": "2-3", "mems": "1"}, ({2, 3}, {1}), id="what a plugin has changed"),
        pytest.param({"shares": 2}, None, id="every CPU"),
        pytest.param(None, None, id="not reported"),
        pytest.param({"cpus": "two"}, None, id="unreadable"),
    ],
)
def test_what_a_created_container_starts_with(cpu: object, wanted: tuple[set[int], set[int]] | None) -> None:
    """Its OCI specification says it; its status says what the kubelet has asked for."""
    info = json.dumps({"runtimeSpec": {"linux": {"resources": {"cpu": cpu}}}})
    reply = api.ContainerStatusResponse(info={"info": info})
    reply.status.resources.linux.cpuset_cpus = "0-3"

    found = translate.applied_at_start(reply)

    assert (({*found.cpus}, {*found.mems}) if found else None) == wanted
