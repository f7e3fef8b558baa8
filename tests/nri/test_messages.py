"""What NRI tells becomes a call of CRI, and what the controller changes in that an adjustment or an update."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cri import api_pb2 as cri
from criproxy.nri import api_pb2 as nri
from criproxy.nri import messages

POD = nri.PodSandbox(
    id="s1",
    name="web",
    uid="u1",
    namespace="shop",
    labels={"app": "web"},
    annotations={"cpu-class.criproxy.io/pod": "fast"},
    linux=nri.LinuxPodSandbox(
        cgroup_parent="/kubepods/podu1",
        pod_resources=nri.LinuxResources(cpu=nri.LinuxCPU(shares=nri.OptionalUInt64(value=2048))),
    ),
)
MOUNTS = [nri.Mount(destination="/dev/shm", source=source, type="bind", options=["rw"]) for source in ("/a", "/b")]


def container() -> nri.Container:
    """One of that pod, with something of everything."""
    return nri.Container(
        id="c1",
        pod_sandbox_id="s1",
        name="main",
        annotations={messages.RESTARTS: "3"},
        env=["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all", "ODD=a=b"],
        mounts=MOUNTS,
        linux=nri.LinuxContainer(
            devices=[nri.LinuxDevice(path="/dev/card0", type="c", major=195)],
            oom_score_adj=nri.OptionalInt(value=-997),
            resources=nri.LinuxResources(
                cpu=nri.LinuxCPU(
                    shares=nri.OptionalUInt64(value=1024),
                    quota=nri.OptionalInt64(value=100_000),
                    period=nri.OptionalUInt64(value=100_000),
                ),
                memory=nri.LinuxMemory(limit=nri.OptionalInt64(value=1 << 20)),
                unified={"memory.high": "9000"},
            ),
        ),
    )


def no_device(path: str) -> tuple[str, int, int]:
    """No device node is added."""
    raise AssertionError(path)


def test_a_create_has_what_the_kubelet_has_sent() -> None:
    """Identity, sizes, variables, nodes and mounts."""
    request = messages.create_request(POD, container())

    assert (request.pod_sandbox_id, request.config.metadata.name, request.config.metadata.attempt) == ("s1", "main", 3)
    sandbox = request.sandbox_config
    assert (sandbox.metadata.name, sandbox.metadata.uid, sandbox.metadata.namespace) == ("web", "u1", "shop")
    assert dict(sandbox.annotations) == {"cpu-class.criproxy.io/pod": "fast"}
    assert (sandbox.linux.cgroup_parent, sandbox.linux.resources.cpu_shares) == ("/kubepods/podu1", 2048)
    linux = request.config.linux.resources
    assert (linux.cpu_shares, linux.cpu_quota, linux.cpu_period, linux.oom_score_adj) == (1024, 100_000, 100_000, -997)
    assert (linux.memory_limit_in_bytes, dict(linux.unified)) == (1 << 20, {"memory.high": "9000"})
    assert {each.key: each.value for each in request.config.envs}["ODD"] == b"a=b"
    assert [each.host_path for each in request.config.mounts] == ["/a", "/b"]
    assert [each.container_path for each in request.config.devices] == ["/dev/card0"]


@pytest.mark.parametrize("restarts", ["9", "3"])
def test_annotations_of_the_pod_are_none_of_the_container(restarts: str) -> None:
    """Runtimes copy them, and a tenant would say which cards were allocated; what the kubelet says goes before."""
    pod, forged = nri.PodSandbox(id="s1"), {"devices.criproxy.io/nvidia.com_gpu": "GPU-a", messages.RESTARTS: restarts}
    pod.annotations.update(forged)
    copied = container()
    copied.annotations.update(forged)
    copied.annotations[messages.RESTARTS] = "3"

    config = messages.create_request(pod, copied).config

    assert set(config.annotations) <= {messages.RESTARTS}
    assert config.metadata.attempt == 3


def test_what_stays_is_not_adjusted() -> None:
    """An empty adjustment is in nobody's way."""
    asked = messages.create_request(POD, container())

    assert messages.adjustment(container(), asked, asked, no_device) == nri.ContainerAdjustment()


def test_everything_that_the_controller_changes_is_adjusted() -> None:
    """CPUs, memory nodes, quota, files of cgroups, annotations, variables, device nodes."""
    asked = messages.create_request(POD, container())
    wanted = cri.CreateContainerRequest.FromString(asked.SerializeToString())
    linux = wanted.config.linux.resources
    linux.cpuset_cpus, linux.cpuset_mems, linux.cpu_quota = "2-3", "0", -1
    linux.unified["cpu.weight"] = "50"
    wanted.config.annotations["criproxy/placement"] = "{}"
    del wanted.config.envs[1]
    wanted.config.envs.add(key="NEW", value=b"1")
    del wanted.config.devices[:]
    wanted.config.devices.add(container_path="/dev/card1", host_path="/dev/host1")

    found = messages.adjustment(container(), asked, wanted, lambda path: ("c", 195, int(path[-1])))

    cpu = found.linux.resources.cpu
    assert (cpu.cpus, cpu.mems, cpu.quota.value, cpu.HasField("shares")) == ("2-3", "0", -1, False)
    assert dict(found.linux.resources.unified) == {"cpu.weight": "50"}
    assert dict(found.annotations) == {"criproxy/placement.c1": "{}"}, "no pod can name this one"
    assert [(each.key, each.value) for each in found.env] == [("-NVIDIA_VISIBLE_DEVICES", ""), ("NEW", "1")]
    nodes = [(each.path, each.type, each.major, each.minor) for each in found.linux.devices]
    assert nodes == [("-/dev/card0", "", 0, 0), ("/dev/card1", "c", 195, 1)]


def test_of_two_mounts_at_one_place_one_stays() -> None:
    """NRI removes all at that place, so it is added again, with its options."""
    asked = messages.create_request(POD, container())
    wanted = cri.CreateContainerRequest.FromString(asked.SerializeToString())
    del wanted.config.mounts[0]

    found = messages.adjustment(container(), asked, wanted, no_device).mounts
    assert [*found] == [nri.Mount(destination="-/dev/shm"), MOUNTS[1]]


AMOUNTS = st.integers(0, 2**62)
LINUX = st.builds(
    cri.LinuxContainerResources,
    cpu_period=AMOUNTS,
    cpu_quota=st.integers(-1, 2**62),
    cpu_shares=AMOUNTS,
    memory_limit_in_bytes=AMOUNTS,
    memory_swap_limit_in_bytes=AMOUNTS,
    cpuset_cpus=st.sampled_from(["", "0-3"]),
    cpuset_mems=st.sampled_from(["", "1"]),
    unified=st.dictionaries(st.sampled_from(["cpu.weight", "memory.high"]), st.sampled_from(["1", "max"])),
    hugepage_limits=st.lists(st.builds(cri.HugepageLimit, page_size=st.just("2MB"), limit=AMOUNTS), max_size=1),
)


@given(LINUX)
def test_an_update_says_what_it_says_in_cri(linux: cri.LinuxContainerResources) -> None:
    """There and back."""
    update = messages.update("c1", linux)

    assert update.container_id == "c1"
    assert messages.update_request("c1", update.linux.resources).linux == linux


@given(st.text(max_size=30))
def test_any_number_of_restarts_is_one(text: str) -> None:
    """Whoever may write annotations of containers may write this one."""
    created = container()
    created.annotations[messages.RESTARTS] = text

    assert messages.create_request(POD, created).config.metadata.attempt >= 0
