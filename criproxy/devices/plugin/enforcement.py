"""What enforces the quota of a container's vGPU while it runs: variables and mounts for libraries and drivers.

The device plugin decides at Allocate, and stores the result in an annotation, which the kubelet repeats at every
restart of the container. From it, the guard restores all variables and mounts at each create: variables of the pod with
the same names come later in the message and would take effect, and a missing source of a mount would be created as a
directory.

Sources: devices.md B.5 (MPS), B.6 (HAMi-core) and scenarios 8 to 10.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from posixpath import join

from criproxy.devices.classes.device_class import DeviceClass, clean_path, is_among
from criproxy.devices.classes.vgpu_profiles import Enforcement, Profile, Quota, Vgpu, quota_in
from criproxy.devices.evidence.device_request import DeviceRequest, EnvVar, Mount, MountPoint, Response
from criproxy.devices.mps_client import PIPE_DIRECTORY, client_mounts
from criproxy.model.text.plain import from_plain, to_plain

ANNOTATION = "devices.criproxy.io/enforcement"
CGROUP_V2 = "/sys/fs/cgroup/cgroup.controllers"
"""Exists on hosts whose driver can limit the memory of a container."""
MPS_ROOT = "/run/nvidia/mps"
"""On the host, unless NVIDIA's file names another directory."""
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
"""The variables that set HAMi-core's limits, or disable them."""
DRIVER_SWITCHES = ("NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST")
MPS_SWITCHES = ("CUDA_MPS_*",)
"""The variables that set a client's daemon, limits and priority, and the meaning of its share of threads."""
SWITCHES = (*MPS_SWITCHES, *HAMI_SWITCHES, *DRIVER_SWITCHES)
"""The variables of all enforcements: names, or prefixes followed by ``*``."""
PLACEHOLDERS = ("memory_mib", "cores_percent", "card")
"""The properties of the vGPU that variables of a profile may contain in braces."""


class Missing(ValueError):
    """The node lacks what should enforce a quota; the text names it, and the missing path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiPaths:
    """The paths of HAMi-core on the host."""

    library: str = "/usr/local/vgpu/libvgpu.so"
    preload: str = "/usr/local/vgpu/ld.so.preload"
    """A file whose only line is the path of the library in containers."""
    containers: str = "/var/lib/criproxy-device-plugin/vgpu"
    """The directory in which criproxy creates a directory for each vGPU."""
    lock: str = "/var/lib/criproxy-device-plugin/vgpulock"
    """A directory that all containers share; criproxy creates it."""


HAMI = HamiPaths()


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforced:
    """The variables and mounts of a container that enforce its quota."""

    by: tuple[str, ...] = ()
    """The names of the enforcements."""
    envs: Mapping[str, str] = field(default_factory=dict)
    strip: tuple[str, ...] = ()
    """Variables that the container must not get from elsewhere: names, or prefixes followed by ``*``."""
    mounts: tuple[Mount, ...] = ()
    needs: tuple[str, ...] = ()
    """The paths on the host that are required."""
    lacking: tuple[str, ...] = ()
    """Why other methods that the profile names are not in effect: sentences."""


def enforced_by(profile: Profile, vgpu: Vgpu, builder: "EnforcementBuilder", exists: Callable[[str], bool]) -> Enforced:
    """Return what enforces the quota of *vgpu*: all enforcements of the profile that the node has.

    Args:
        profile: the profile of the vGPU.
        vgpu: the vGPU of the container.
        builder: builds each enforcement.
        exists: whether a path exists on the host.

    Raises:
        Missing: the node lacks one enforcement and the profile requires all, or the node has none.
    """
    found, lacking = list[Enforced](), list[str]()
    for way in profile.enforce:
        each = builder.build(way, vgpu)
        if missing := [path for path in each.needs if not exists(path)]:
            lacking.append(f"{way} needs {missing[0]}, which does not exist on this node")
        else:
            found.append(each)
    if lacking and (profile.when_missing == "refuse" or not found):
        raise Missing("; ".join(lacking))
    own = Enforced(envs={name: _filled(text, vgpu) for name, text in profile.env}, strip=tuple(dict(profile.env)))
    return Enforced(
        by=tuple(way for each in found for way in each.by),
        envs={name: value for each in (*found, own) for name, value in each.envs.items()},
        strip=tuple(name for each in (*found, own) for name in each.strip),
        mounts=tuple(mount for each in found for mount in each.mounts),
        needs=tuple(path for each in found for path in each.needs),
        lacking=tuple(lacking),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcementBuilder:
    """Builds the variables and mounts of each enforcement."""

    resource: str
    """The resource of the vGPU, with its domain."""
    hami: HamiPaths = HAMI
    mps_root: str = MPS_ROOT

    def build(self, way: Enforcement, vgpu: Vgpu) -> Enforced:
        """Return what one enforcement needs in the container of *vgpu*."""
        match way:
            case "watch" | "mig":  # the watcher acts from outside, and a MIG device is limited by the hardware
                return Enforced(by=(way,))
            case "hami-core":
                return self._hami(vgpu)
            case "nvidia-memory-limit":
                amount = str(vgpu.memory_mib)
                envs = dict.fromkeys(reversed(DRIVER_SWITCHES), amount) if vgpu.memory_mib else {}
                return Enforced(by=(way,), envs=envs, strip=DRIVER_SWITCHES, needs=(CGROUP_V2,))
            case "mps":
                return self._mps(vgpu)

    def folders(self, way: Enforcement, vgpu: Vgpu) -> tuple[str, str] | None:
        """Return the directory of *vgpu* and that of all vGPUs, which criproxy makes for an enforcement; or None."""
        return (join(self.hami.containers, vgpu.file_name), self.hami.lock) if way == "hami-core" else None

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
        """Return the variables and mounts of MPS: the container's only card has ordinal 0; limits are per process."""
        mounts = client_mounts(self.mps_root, self.resource)
        envs = {PIPE_DIRECTORY: mounts[0].container_path}
        if vgpu.cores_percent:
            envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(vgpu.cores_percent)
        if vgpu.memory_mib:
            envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={vgpu.memory_mib}M"
        return Enforced(by=("mps",), envs=envs, strip=MPS_SWITCHES, mounts=mounts, needs=(mounts[0].host_path,))


def _filled(text: str, vgpu: Vgpu) -> str:
    """Return a variable of the profile with the placeholders replaced, such as the name of a vendor's template."""
    for name in PLACEHOLDERS:
        text = text.replace(f"{{{name}}}", str(getattr(vgpu, name)))
    return text


def with_enforcement(response: Response, found: Enforced) -> Response:
    """Return a response to Allocate, with the variables and mounts that enforce the quota."""
    text = json.dumps(to_plain(found), sort_keys=True, separators=(",", ":"))
    return replace(
        response,
        envs={**response.envs, **found.envs},
        mounts=(*response.mounts, *found.mounts),
        annotations={**response.annotations, ANNOTATION: text},
    )


def enforcement_in(annotations: Mapping[str, str]) -> Enforced | None:
    """Return the enforcement in a container's *annotations*; None if there is none, or it is invalid."""
    try:
        return from_plain(Enforced, json.loads(annotations[ANNOTATION]))
    except (KeyError, ValueError, RecursionError):
        return None


def enforced_quota_in(annotations: Mapping[str, str]) -> Quota | None:
    """Return the quota in a container's *annotations*, with whether the watcher enforces it."""
    quota, found = quota_in(annotations), enforcement_in(annotations)
    if quota is None or found is None:
        return quota
    by, lacking = ", ".join(found.by), "; ".join(found.lacking)
    return replace(quota, watched="watch" in found.by, enforced_by=by, not_enforced=lacking)


def as_enforced(asked: DeviceRequest, found: Enforced) -> DeviceRequest:
    """Return *asked* with the variables of *found*, each once, and without variables and mounts that replace ours."""
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


def names_removed(before: DeviceRequest, after: DeviceRequest) -> list[str]:
    """Return the names of variables and mounts of *before* that *after* lacks: switches and mounts of the pod."""
    kept = {*after.envs, *after.mounts}
    envs = (env.name for env in before.envs if env not in kept)
    mounts = (f"mount {mount.container_path}" for mount in before.mounts if mount not in kept)
    return list(dict.fromkeys([*envs, *mounts]))


def lost_mounts(asked: DeviceRequest, found: Enforced) -> list[str]:
    """Return the container paths of the mounts of *found* that the create lacks."""
    there = {_ends(mount) for mount in asked.mounts}
    return [mount.container_path for mount in found.mounts if _ends(mount) not in there]


def managed_env_prefixes(classes: Iterable[DeviceClass], annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the prefixes of all variables that the device rules read or change in a create with *annotations*."""
    found = enforcement_in(annotations) or Enforced()
    names = (*MPS_SWITCHES, *found.envs, *found.strip)
    of_classes = [prefix for kind in classes for prefix in kind.env_prefixes]
    return (*of_classes, *(name.removesuffix("*") for name in names))


def _hides(mount: MountPoint, mounts: Iterable[Mount], ours: set[tuple[str, str]]) -> bool:
    """Whether a mount would cover one of ours, or be inside it."""
    if _ends(mount) in ours:
        return False
    path = clean_path(mount.container_path)
    return any(f"{path}/".startswith(f"{clean_path(each.container_path)}/") for each in mounts)


def _ends(mount: Mount | MountPoint) -> tuple[str, str]:
    """Return the paths of a mount in the container and on the host."""
    return clean_path(mount.container_path), clean_path(mount.host_path)
