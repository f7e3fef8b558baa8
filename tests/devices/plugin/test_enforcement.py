"""What holds a container to the quota of its vGPU: scenarios 8 to 10 of devices.md H.6, and what a pod sets itself."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.devices.classes.vgpu_profiles import Enforcement, Profile, Quota, Vgpu, WhenMissing, annotations_of
from criproxy.devices.evidence.device_request import DeviceRequest, EnvVar, Mount, MountPoint, Response
from criproxy.devices.plugin.enforcement import (
    CGROUP_V2,
    HAMI,
    Enforced,
    EnforcementBuilder,
    Missing,
    as_enforced,
    enforced_by,
    enforced_quota_in,
    enforcement_in,
    lost_mounts,
    with_enforcement,
)

DRIVER_SWITCHES, PIPE = ("NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT"), "/mps/criproxy.io/gpu-8g/pipe"
PROFILE = Profile(name="gpu-8g", kind="nvidia", memory_mib=8192, cores_percent=25)
VGPU = Vgpu(id="GPU-a/gpu-8g/0", card="GPU-a", profile="gpu-8g", memory_mib=8192, cores_percent=25)


def enforced(
    *enforce: Enforcement, vgpu: Vgpu = VGPU, lacking: str = "", when_missing: WhenMissing = "refuse"
) -> Enforced:
    """What enforces the quota of *vgpu* on a host that has every file but one."""
    profile = replace(PROFILE, enforce=enforce, when_missing=when_missing)
    return enforced_by(profile, vgpu, EnforcementBuilder(resource="criproxy.io/gpu-8g"), lambda path: path != lacking)


@pytest.mark.parametrize(
    ("way", "envs", "mounts"),
    [
        pytest.param("nvidia-memory-limit", dict.fromkeys(DRIVER_SWITCHES, "8192"), (), id="10"),
        pytest.param(
            "mps",
            {
                "CUDA_MPS_PIPE_DIRECTORY": PIPE,
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8192M",
            },
            (Mount(PIPE, f"/run/nvidia{PIPE}"), Mount("/dev/shm", "/run/nvidia/mps/shm")),
            id="8",
        ),
    ],
)
def test_scenarios(way: Enforcement, envs: dict[str, str], mounts: tuple[Mount, ...]) -> None:
    """Libraries, drivers and daemons get the limits and their files; those that matter are read-only."""
    found = enforced(way)

    assert (found.envs, found.mounts) == (envs, mounts)


def test_a_quota_that_there_is_not_limits_nothing() -> None:
    """Without a quota of memory or of cores no variable names one."""
    found = enforced("hami-core", "mps", vgpu=replace(VGPU, memory_mib=0, cores_percent=0))
    assert set(found.envs) == {"CUDA_DEVICE_MEMORY_SHARED_CACHE", "CUDA_MPS_PIPE_DIRECTORY"}


@pytest.mark.parametrize(
    ("enforce", "when_missing", "lacking", "expected"),
    [
        pytest.param(("hami-core", "watch"), "next", HAMI.library, ("watch",), id="the-watcher-is-there"),
        pytest.param(("hami-core", "mps"), "next", HAMI.preload, ("mps",), id="next"),
        pytest.param(("hami-core",), "next", HAMI.library, f"hami-core needs {HAMI.library}, which does", id="no-next"),
        pytest.param(("nvidia-memory-limit", "watch"), "refuse", CGROUP_V2, f"needs {CGROUP_V2}, which", id="refuse"),
    ],
)
def test_what_is_missing(
    enforce: tuple[Enforcement, ...], when_missing: WhenMissing, lacking: str, expected: tuple[str, ...] | str
) -> None:
    """The others must do, or the container is refused with the name of what is missing, as the profile says."""
    if isinstance(expected, str):
        with pytest.raises(Missing, match=expected):
            enforced(*enforce, lacking=lacking, when_missing=when_missing)
    else:
        assert enforced(*enforce, lacking=lacking, when_missing=when_missing).by == expected


def test_what_holds_a_container_and_what_does_not() -> None:
    """Its annotations say both for people, without any influence on whether two quotas are the same."""
    found = enforced("hami-core", "watch", when_missing="next", lacking=HAMI.library)
    quota = enforced_quota_in(with_enforcement(Response(annotations=annotations_of(VGPU)), found).annotations)

    assert quota == Quota(profile="gpu-8g", memory_mib=8192, cores_percent=25)
    assert quota is not None
    assert quota.enforced_by == "watch"
    assert quota.not_enforced == f"hami-core needs {HAMI.library}, which does not exist on this node"


def test_variables_of_the_profile() -> None:
    """A vendor's template is a variable of the profile, in which the quota may stand."""
    profile = replace(PROFILE, env=(("ASCEND_VNPU_SPECS", "vir02"), ("MEMORY", "{memory_mib}MB of {card}")))
    found = enforced_by(profile, VGPU, EnforcementBuilder(resource="x"), lambda _: True)
    assert found.envs == {"ASCEND_VNPU_SPECS": "vir02", "MEMORY": "8192MB of GPU-a"}


def _asked(response: Response, *more: tuple[str, str], mounts: tuple[MountPoint, ...] = ()) -> DeviceRequest:
    """A create as the kubelet makes it: the device plugin's entries first, then the pod's."""
    return DeviceRequest(
        envs=tuple(EnvVar(name, value.encode()) for name, value in (*response.envs.items(), *more)),
        mounts=(*(MountPoint(each.container_path, each.host_path) for each in response.mounts), *mounts),
        annotations=response.annotations,
    )


SWITCHES = [
    ("CUDA_DISABLE_CONTROL", "true"),
    ("CUDA_DEVICE_MEMORY_LIMIT_0", "0"),
    ("CUDA_DEVICE_MEMORY_LIMIT", "999g"),
    ("CUDA_DEVICE_SM_LIMIT", "100"),
    ("GPU_CORE_UTILIZATION_POLICY", "disable"),
    ("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/dev/null"),
    ("NVIDIA_GPU_MEMORY_LIMIT", "99999"),
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"),
    ("CUDA_MPS_CLIENT_PRIORITY", "0"),
    ("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING", "1"),
]
OVER = [
    MountPoint("/etc/ld.so.preload", "/pods/empty"),
    MountPoint("/etc/../etc/ld.so.preload", "/dev/null"),
    MountPoint("//etc/ld.so.preload", "/dev/null"),
    MountPoint("etc/ld.so.preload", "/dev/null"),
    MountPoint("/usr/local/vgpu/libvgpu.so", "/pods/mine"),
    MountPoint("//usr/local/vgpu/libvgpu.so", "/pods/mine"),
    MountPoint("/usr/local/vgpu/sub", "/pods/sub"),
]


@given(st.lists(st.sampled_from(SWITCHES)), st.lists(st.sampled_from(OVER)))
def test_a_pod_cannot_switch_its_quota_off(switches: list[tuple[str, str]], over: list[MountPoint]) -> None:
    """Whatever a pod sets or mounts, it gets our values once, our mounts, and everything else unchanged."""
    found = enforced(*get_args(Enforcement))
    own = [("HOME", "/root"), ("CUDA_VISIBLE_DEVICES", "0")]
    kept = (MountPoint("/usr/local/vgpux", "/x"), MountPoint("/etc", "/e"))
    asked = _asked(with_enforcement(Response(), found), *switches, *own, mounts=(*over, *kept))

    read = enforcement_in(asked.annotations)
    assert read == found
    done = as_enforced(asked, read)

    assert lost_mounts(done, read) == []
    assert sorted(done.envs) == sorted(EnvVar(k, v.encode()) for k, v in (*found.envs.items(), *own))
    assert [each for each in done.mounts if each in kept] == [*kept]
    assert not {each.host_path for each in done.mounts} & {each.host_path for each in OVER}
    assert as_enforced(done, read) is done


def test_a_mount_that_is_gone_is_named() -> None:
    """A create without one of our mounts would not be held to its quota."""
    found = enforced(*get_args(Enforcement))
    asked = _asked(with_enforcement(Response(), found))
    assert lost_mounts(replace(asked, mounts=asked.mounts[:-1]), found) == ["/etc/ld.so.preload"]


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"envs": 5}', "null"])
def test_an_annotation_that_cannot_be_read_enforces_nothing(text: str) -> None:
    """What is no enforcement is none, and no error."""
    assert enforcement_in({"devices.criproxy.io/enforcement": text}) is None


@pytest.mark.parametrize(("enforce", "watched"), [(("mps", "watch"), True), (("hami-core",), False), ((), True)])
def test_a_quota_says_whether_it_is_watched(enforce: tuple[Enforcement, ...], *, watched: bool) -> None:
    """It is as Allocate has chosen; an annotation that is missing says nothing else."""
    response = Response(annotations=annotations_of(VGPU))
    if enforce:
        response = with_enforcement(response, enforced(*enforce))
    expected = Quota(profile="gpu-8g", memory_mib=8192, cores_percent=25, watched=watched)
    assert enforced_quota_in(response.annotations) == expected
    assert enforced_quota_in({}) is None
