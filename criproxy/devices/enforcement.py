"""What holds a container to the quota of its vGPU while it runs: variables and mounts of libraries and drivers.

The device plugin decides at Allocate, and says so in one annotation, which the kubelet repeats at every restart of the
container. From it the boundary renews all of it at each create: variables of the same names that a pod has itself come
after ours in the message and would count, and a mount whose source is missing would be made as a directory.

Sources: devices.md B.5 (MPS), B.6 (HAMi-core) and scenarios 8 to 10.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from posixpath import join

from criproxy.devices.allocation import Mount, Response
from criproxy.devices.asked import Asked, EnvVar, MountPoint
from criproxy.devices.paths import clean_path
from criproxy.devices.vgpu_profiles import Enforcement, Profile, Quota, Vgpu, quota_in
from criproxy.model.plain import from_plain, to_plain

ANNOTATION = "devices.criproxy.io/enforcement"
CGROUP_V2 = "/sys/fs/cgroup/cgroup.controllers"
"""On the host, where the driver can limit a container's memory."""
MPS_ROOT = "/run/nvidia/mps"
"""On the host, where NVIDIA's file names no other folder."""
HAMI_FOLDER = "/usr/local/vgpu"
"""In containers."""
PRELOAD = "/etc/ld.so.preload"
LOCK = "/tmp/vgpulock"  # noqa: S108 - HAMi-core's own name, in the container
HAMI_SWITCHES = (
    "ACTIVE_OOM_KILLER",
    "CUDA_DEVICE_MEMORY_LIMIT*",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE",
    "CUDA_DEVICE_SM_LIMIT*",
    "CUDA_DISABLE_CONTROL",
    "CUDA_OVERSUBSCRIBE",
    "CUDA_TASK_PRIORITY",
    "GPU_CORE_UTILIZATION_POLICY",
)
"""By which HAMi-core's limits are set, or switched off."""
DRIVER_SWITCHES = ("NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST")
MPS_SWITCHES = ("CUDA_MPS_*",)
"""Which daemon a client asks, its limits, its priority, and what its share of threads means."""
SWITCHES: Mapping[Enforcement, tuple[str, ...]] = {
    "watch": (),
    "mps": MPS_SWITCHES,
    "hami-core": HAMI_SWITCHES,
    "nvidia-memory-limit": DRIVER_SWITCHES,
    "mig": (),
}
"""The variables of each way of enforcing: names, or beginnings and ``*``."""
PLACEHOLDERS = ("memory_mib", "cores_percent", "card")
"""What stands in braces for something of the vGPU, in variables of a profile."""


class Missing(ValueError):
    """What shall enforce a quota is not on this node; the text names it, and how it is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiPaths:
    """Where HAMi-core is on the host."""

    library: str = "/usr/local/vgpu/libvgpu.so"
    preload: str = "/usr/local/vgpu/ld.so.preload"
    """A file whose only line is the path of the library in containers."""
    containers: str = "/var/lib/criproxy-device-plugin/vgpu"
    """Has a folder for each vGPU, which criproxy makes."""
    lock: str = "/var/lib/criproxy-device-plugin/vgpulock"
    """A folder that all containers share, which criproxy makes."""


HAMI = HamiPaths()


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforced:
    """What a container is created with to hold it to its quota."""

    by: tuple[str, ...] = ()
    """What does it."""
    envs: Mapping[str, str] = field(default_factory=dict)
    strip: tuple[str, ...] = ()
    """Names of variables, or beginnings and ``*``, that the container gets from nobody else."""
    mounts: tuple[Mount, ...] = ()
    needs: tuple[str, ...] = ()
    """Paths on the host without which it does not work."""

    def joined(self, other: "Enforced") -> "Enforced":
        """Both."""
        return Enforced(
            by=self.by + other.by,
            envs={**self.envs, **other.envs},
            strip=self.strip + other.strip,
            mounts=self.mounts + other.mounts,
            needs=self.needs + other.needs,
        )


def enforced_by(profile: Profile, vgpu: Vgpu, makers: "Makers", exists: Callable[[str], bool]) -> Enforced:
    """What holds a container to the quota of *vgpu*: all that the profile names and that is there.

    Args:
        profile: of the vGPU.
        vgpu: the container's.
        makers: know each way of enforcing.
        exists: whether a path is on the host.

    Raises:
        Missing: one of them is not there, and the profile refuses then; or none is there.
    """
    found, lacking = Enforced(), list[str]()
    for way in profile.enforce:
        each = makers.make(way, vgpu)
        if missing := [path for path in each.needs if not exists(path)]:
            lacking.append(f"{way} needs {missing[0]}, which does not exist on this node")
        else:
            found = found.joined(each)
    if lacking and (profile.when_missing == "refuse" or not found.by):
        raise Missing("; ".join(lacking))
    own = {name: _filled(text, vgpu) for name, text in profile.env}
    return replace(found, envs={**found.envs, **own}, strip=found.strip + tuple(own))


@dataclass(frozen=True, slots=True, kw_only=True)
class Makers:
    """Makes what each way of enforcing needs in a container."""

    resource: str
    """Of the vGPU, with its domain."""
    hami: HamiPaths = HAMI
    mps_root: str = MPS_ROOT

    def make(self, way: Enforcement, vgpu: Vgpu) -> Enforced:
        """One of them."""
        match way:
            case "watch" | "mig":  # the watcher acts from outside, and a MIG device has no more than its own
                return Enforced(by=(way,))
            case "hami-core":
                return self._hami(vgpu)
            case "nvidia-memory-limit":
                amount = str(vgpu.memory_mib)
                envs = dict.fromkeys(reversed(DRIVER_SWITCHES), amount) if vgpu.memory_mib else {}
                return Enforced(by=(way,), envs=envs, strip=DRIVER_SWITCHES, needs=(CGROUP_V2,))
            case "mps":
                return self._mps(vgpu)

    def _hami(self, vgpu: Vgpu) -> Enforced:
        envs = {"CUDA_DEVICE_MEMORY_LIMIT_0": f"{vgpu.memory_mib}m"} if vgpu.memory_mib else {}
        if vgpu.cores_percent:
            envs["CUDA_DEVICE_SM_LIMIT"] = str(vgpu.cores_percent)
        envs["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = join(HAMI_FOLDER, f"{vgpu.file_name}.cache")
        folder = join(self.hami.containers, vgpu.file_name)
        mounts = (
            Mount(HAMI_FOLDER, folder),
            Mount(join(HAMI_FOLDER, "libvgpu.so"), self.hami.library, read_only=True),
            Mount(LOCK, self.hami.lock),
            Mount(PRELOAD, self.hami.preload, read_only=True),
        )
        sources = tuple(mount.host_path for mount in mounts)
        return Enforced(by=("hami-core",), envs=envs, strip=HAMI_SWITCHES, mounts=mounts, needs=sources)

    def _mps(self, vgpu: Vgpu) -> Enforced:
        """The container sees one card, whose ordinal is 0, and the limits hold for each of its processes."""
        container, host = join("/mps", self.resource, "pipe"), join(self.mps_root, self.resource, "pipe")
        envs = {"CUDA_MPS_PIPE_DIRECTORY": container}
        if vgpu.cores_percent:
            envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(vgpu.cores_percent)
        if vgpu.memory_mib:
            envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={vgpu.memory_mib}M"
        mounts = (Mount(container, host), Mount("/dev/shm", join(self.mps_root, "shm")))  # noqa: S108
        return Enforced(by=("mps",), envs=envs, strip=MPS_SWITCHES, mounts=mounts, needs=(host,))


def _filled(text: str, vgpu: Vgpu) -> str:
    """A variable of the profile itself, such as the name of a vendor's template."""
    for name in PLACEHOLDERS:
        text = text.replace(f"{{{name}}}", str(getattr(vgpu, name)))
    return text


def with_enforcement(response: Response, found: Enforced) -> Response:
    """What Allocate answers, with what holds the container to its quota."""
    text = json.dumps(to_plain(found), sort_keys=True, separators=(",", ":"))
    return replace(
        response,
        envs={**response.envs, **found.envs},
        mounts=(*response.mounts, *found.mounts),
        annotations={**response.annotations, ANNOTATION: text},
    )


def enforcement_in(annotations: Mapping[str, str]) -> Enforced | None:
    """What *annotations* of a container say; None where they say nothing that can be read."""
    try:
        return from_plain(Enforced, json.loads(annotations[ANNOTATION]))
    except (KeyError, ValueError, RecursionError):
        return None


def enforced_quota_in(annotations: Mapping[str, str]) -> Quota | None:
    """The quota that *annotations* of a container say, and whether the watcher enforces it."""
    quota, found = quota_in(annotations), enforcement_in(annotations)
    return replace(quota, watched="watch" in found.by) if quota and found else quota


def as_enforced(asked: Asked, found: Enforced) -> Asked:
    """*asked* with the variables of *found*, each once, and without variables and mounts in the places of ours."""
    envs, left = list[EnvVar](), {name: value.encode() for name, value in found.envs.items()}
    for env in asked.envs:
        if left.get(env.name) == env.value:
            del left[env.name]
            envs.append(env)
        elif env.name not in found.envs and not is_among(env.name, found.strip):
            envs.append(env)
    envs += [EnvVar(name, value) for name, value in left.items()]
    ours = {_ends(mount) for mount in found.mounts}
    kept = [mount for mount in asked.mounts if not _hides(mount, found.mounts, ours)]
    if tuple(envs) == asked.envs and tuple(kept) == asked.mounts:
        return asked
    return replace(asked, envs=tuple(envs), mounts=tuple(kept))


def lost_mounts(asked: Asked, found: Enforced) -> list[str]:
    """Mounts of *found* that the create does not have, by their paths in the container."""
    there = {_ends(mount) for mount in asked.mounts}
    return [mount.container_path for mount in found.mounts if _ends(mount) not in there]


def is_among(name: str, patterns: Sequence[str]) -> bool:
    """Whether a variable is one of *patterns*, which are names, or beginnings and ``*``."""
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns)


def _hides(mount: MountPoint, mounts: Iterable[Mount], ours: set[tuple[str, str]]) -> bool:
    """Whether a mount would lie over one of ours, or below it."""
    if _ends(mount) in ours:
        return False
    path = clean_path(mount.container_path)
    return any(path == place or path.startswith(f"{place}/") for place in _places(mounts))


def _ends(mount: Mount | MountPoint) -> tuple[str, str]:
    """Where a mount is in the container, and what it is on the host."""
    return clean_path(mount.container_path), clean_path(mount.host_path)


def _places(mounts: Iterable[Mount]) -> Iterator[str]:
    for mount in mounts:
        yield clean_path(mount.container_path)
