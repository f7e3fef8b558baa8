"""The labels that NVIDIA's GPU feature discovery gives a node: all of them, with their names and values.

If several models or profiles share a key, the last in NVML's order is used; NVIDIA's choice is random in this case.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from criproxy.deviceplugin.nvidia.gpus import MIG_ATTRIBUTES, Gpu, MigDevice
from criproxy.deviceplugin.nvidia.options import GPU_RESOURCE, PREFIX, GfdFlags, PluginConfig, Sharing
from criproxy.deviceplugin.nvidia.resources import counted_gpus

_ILLEGAL = re.compile("[^A-Za-z0-9_. -]")
_FAMILIES = {
    1: "tesla",
    2: "fermi",
    3: "kepler",
    5: "maxwell",
    6: "pascal",
    9: "hopper",
    10: "blackwell",
    12: "blackwell",
    13: "rubin",
}
"""By the major number of the compute capability."""
_SPLIT = {7: (5, "volta", "turing"), 8: (9, "ampere", "ada-lovelace")}
"""Major numbers of two architectures: the first minor number of the second one, and both."""
_UNDEFINED = "undefined"
_MIG = "MIG"
_INVALID = "INVALID"
Labels = dict[str, str]
_UNKNOWN = "unknown"
_MODES = {0x030000: "graphics", 0x030200: "compute"}
"""By PCI class: devices that drive a monitor, and devices that only compute."""
_PARTS_OF_A_DRIVER = (2, 3)


class LabelError(ValueError):
    """NVIDIA's feature discovery gives no labels for this machine or configuration; the text is NVIDIA's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuGuest:
    """What the hypervisor reports to a virtual machine whose GPU is a part of a GPU of the host."""

    host_driver_version: str = ""
    """Empty if unknown, like the branch."""
    host_driver_branch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The properties of a machine that labels describe."""

    gpus: tuple[Gpu, ...] = ()
    """In the order of NVML."""
    driver_version: str = ""
    """For example ``550.54.15``."""
    cuda_version: tuple[int, int] = (0, 0)
    """The newest version that the driver supports."""
    machine_type: str | None = None
    """The content of the file for it; None if there is none."""
    vgpu: VgpuGuest | None = None
    """None if the machine is not a guest with a vGPU."""
    init_error: str = ""
    """Why NVML cannot be initialised; empty if it can."""


def labels(machine: Machine, config: PluginConfig) -> Labels:
    """Return all labels of *machine* except the timestamp.

    Raises:
        LabelError: The machine gets no labels.
    """
    return _device_labels(machine, config) | _vgpu_labels(machine.vgpu)


def undescribed_models(all_gpus: Iterable[Gpu], config: PluginConfig) -> tuple[str, list[str]]:
    """Return the model that the labels of whole GPUs describe, and other models with the same labels; empty if none.

    The number of GPUs, their sharing and their capabilities are labels of only one model.
    """
    gpus = counted_gpus(all_gpus)
    has_mig_labels = config.flags.mig_strategy == "single" and any(gpu.mig_enabled for gpu in gpus)
    models = [] if has_mig_labels else list(dict.fromkeys(gpu.name for gpu in gpus if not gpu.mig_enabled))
    return (models[-1], models[:-1]) if len(models) > 1 else ("", [])


def timestamp_label(flags: GfdFlags, started_s: float) -> Labels:
    """Return the label with the time of startup or of the last reload, in seconds since the epoch."""
    return {} if flags.no_timestamp else {f"{PREFIX}gfd.timestamp": str(int(started_s))}


def _device_labels(machine: Machine, config: PluginConfig) -> Labels:
    if machine.init_error:
        if config.flags.fail_on_init_error:
            raise LabelError(f"failed to initialize resource manager: {machine.init_error}")
        return {}
    gpus = counted_gpus(machine.gpus)
    if not gpus:
        return {}
    return (
        {f"{PREFIX}gpu.machine": _UNKNOWN if machine.machine_type is None else sanitised(machine.machine_type)}
        | _driver_labels(machine.driver_version)
        | _cuda_labels(machine.cuda_version)
        | {f"{PREFIX}mig.capable": _bool(any(gpu.mig_capable for gpu in gpus))}
        | {f"{PREFIX}mps.capable": _bool(_mps_capable(gpus, config))}
        | _resource_labels(gpus, config)
        | {f"{PREFIX}gpu.mode": _mode(gpus)}
        | _clique_labels(gpus)
    )


def _driver_labels(version: str) -> Labels:
    """Return the version and its parts, and the parts again under older names."""
    parts = version.split(".")
    if len(parts) not in _PARTS_OF_A_DRIVER:
        raise LabelError(f'error getting driver version: Version "{version}" does not match format "X.Y[.Z]"')
    found = {f"{PREFIX}cuda.driver-version.full": version}
    for part, name, older in zip((*parts, ""), ("major", "minor", "revision"), ("major", "minor", "rev"), strict=False):
        found |= {f"{PREFIX}cuda.driver-version.{name}": part, f"{PREFIX}cuda.driver.{older}": part}
    return found


def _cuda_labels(version: tuple[int, int]) -> Labels:
    found = {f"{PREFIX}cuda.runtime-version.full": "{}.{}".format(*version)}
    for name, part in zip(("major", "minor"), map(str, version), strict=True):
        found |= {f"{PREFIX}cuda.runtime.{name}": part, f"{PREFIX}cuda.runtime-version.{name}": part}
    return found


def _mps_capable(gpus: Iterable[Gpu], config: PluginConfig) -> bool:
    """Whether MPS is configured for any resource."""
    if config.sharing.strategy != "mps":
        return False
    if any(gpu.mig_enabled for gpu in gpus):
        raise LabelError("failed to check MPS-capable: MPS sharing is not supported for mig devices")
    return True


def _mode(gpus: Iterable[Gpu]) -> str:
    classes = {gpu.pci_class for gpu in gpus}
    only = classes.pop() if len(classes) == 1 else None
    return _UNKNOWN if only is None else _MODES.get(only, _UNKNOWN)


def _clique_labels(gpus: Iterable[Gpu]) -> Labels:
    """Return the NVLink domain, if all GPUs that belong to one belong to the same."""
    fabrics = {gpu.fabric for gpu in gpus if gpu.fabric is not None}
    only = fabrics.pop() if len(fabrics) == 1 else None
    if only is None or not only.cluster_uuid or not only.clique_id:
        return {}
    return {f"{PREFIX}gpu.clique": f"{only.cluster_uuid}.{only.clique_id}"}


def _vgpu_labels(guest: VgpuGuest | None) -> Labels:
    present = {f"{PREFIX}vgpu.present": _bool(guest is not None)}
    if guest is None:
        return present
    host = {
        f"{PREFIX}vgpu.host-driver-version": guest.host_driver_version,
        f"{PREFIX}vgpu.host-driver-branch": guest.host_driver_branch,
    }
    return present | {key: text for key, text in host.items() if text}


def _resource_labels(gpus: Sequence[Gpu], config: PluginConfig) -> Labels:
    found = _gpu_labels(gpus, config)
    strategy: str = config.flags.mig_strategy
    if strategy == "none":
        return found
    found[f"{PREFIX}mig.strategy"] = strategy
    match strategy:
        case "single":
            return found | _single_labels(gpus, config)
        case "mixed":
            return found | _mixed_labels(gpus, config)
        case _:
            raise LabelError(f"unknown strategy: {strategy}")


def _gpu_labels(gpus: Sequence[Gpu], config: PluginConfig) -> Labels:
    """Return the labels of GPUs; models without MIG take precedence over those with MIG."""
    counts, found = Counter(gpu.name for gpu in gpus), Labels()
    for has_mig, shares in ((True, NOT_APPLIED), (False, shares_of(GPU_RESOURCE, config.sharing))):
        last_of_model = {gpu.name: gpu for gpu in gpus if gpu.mig_enabled is has_mig}
        for name, gpu in last_of_model.items():
            found |= gpu_labels(gpu, counts[name], shares)
    return found


def _single_labels(gpus: Sequence[Gpu], config: PluginConfig) -> Labels:
    """Return the labels of MIG devices under the names of whole GPUs, if all GPUs have MIG and all are alike."""
    enabled = [gpu for gpu in gpus if gpu.mig_enabled]
    if not enabled:
        return {}
    profiles = _by_profile(enabled)
    if len(enabled) < len(gpus) or not all(gpu.mig for gpu in enabled) or len(profiles) != 1:
        return invalid_labels(enabled[0])
    ((parent, devices),) = profiles.values()
    return mig_labels(GPU_RESOURCE, parent, devices, shares_of(GPU_RESOURCE, config.sharing))


def _mixed_labels(gpus: Iterable[Gpu], config: PluginConfig) -> Labels:
    found: Labels = {}
    for profile, (parent, devices) in _by_profile(gpus).items():
        resource = f"{PREFIX}mig-{profile_word(profile)}"
        found |= mig_labels(resource, parent, devices, shares_of(resource, config.sharing))
    return found


def _by_profile(gpus: Iterable[Gpu]) -> dict[str, tuple[Gpu, list[MigDevice]]]:
    """Return the MIG devices of each profile, with the GPU of the first one."""
    found: dict[str, tuple[Gpu, list[MigDevice]]] = {}
    for gpu in gpus:
        for device in gpu.mig if gpu.mig_enabled else ():
            found.setdefault(device.profile, (gpu, []))[1].append(device)
    return found


def _bool(value: bool) -> str:
    return "true" if value else "false"


def sanitised(text: str) -> str:
    """Return *text* with a dash for each run of blanks, and without characters that labels must not contain.

    Tabs and line feeds are not blanks. The result may be too long for a label, or begin or end with an invalid one.
    """
    return "-".join(_ILLEGAL.sub("", text).split())


def product(parts: Iterable[str], *, shared: bool = False) -> str | None:
    """Return the value of ``.product``; None if nothing is known."""
    words = [sanitised(part) for part in parts if part]
    return "-".join([*words, "SHARED"] if shared else words) if words else None


def profile_word(profile: str) -> str:
    """Return a MIG profile in the notation of labels: ``1g.5gb.me`` for ``1g.5gb+me``."""
    return profile.replace("+", ".")


def family(compute_capability: tuple[int, int]) -> str:
    """Return the architecture of a compute capability, for example ``turing`` for 7.5."""
    major, minor = compute_capability
    if major in _SPLIT:
        since, older, newer = _SPLIT[major]
        return newer if minor >= since else older
    return _FAMILIES.get(major, _UNDEFINED)


@dataclass(frozen=True, slots=True)
class Shares:
    """How the cards of one resource are shared."""

    replicas: int = 1
    """Replicas per card; 0 if the configuration does not apply to them."""
    strategy: str = "none"
    renamed: bool = False
    """Whether the shared cards are another resource, so that the product need not show it."""

    @property
    def suffixed(self) -> bool:
        """Whether the product shows that cards are shared."""
        return self.replicas > 1 and not self.renamed


NOT_APPLIED = Shares(replicas=0)
"""For GPUs with MIG."""
_NOTHING_OFFERED = Shares(replicas=0, strategy="")
"""For MIG devices that are not offered with the strategy ``single``."""


def shares_of(resource: str, sharing: Sharing) -> Shares:
    """Return how *resource* is shared, according to the first entry for it."""
    entry = next((each for each in sharing.entries if each.name == resource), None)
    return Shares(entry.replicas, sharing.strategy, bool(entry.rename)) if entry else Shares()


def gpu_labels(gpu: Gpu, count: int, shares: Shares) -> Labels:
    """Return the labels of *count* whole GPUs of one model, of which *gpu* is one."""
    labels = _base(GPU_RESOURCE, count, (gpu.name,), shares)
    if gpu.memory_mib:
        labels[f"{GPU_RESOURCE}.memory"] = str(gpu.memory_mib)
    major, minor = gpu.compute_capability
    if major:
        labels |= {
            f"{GPU_RESOURCE}.family": family(gpu.compute_capability),
            f"{GPU_RESOURCE}.compute.major": str(major),
            f"{GPU_RESOURCE}.compute.minor": str(minor),
        }
    return labels


def mig_labels(resource: str, parent: Gpu, devices: Sequence[MigDevice], shares: Shares) -> Labels:
    """Return the labels of *devices* of one profile, the first of which is a part of *parent*."""
    first = devices[0]
    attributes = dict(first.attributes)
    labels = _base(resource, len(devices), (parent.name, _MIG, profile_word(first.profile)), shares)
    labels[f"{resource}.memory"] = str(first.memory_mib)
    # 0 for what NVML does not report
    return labels | {f"{resource}.{name}": str(attributes.get(name, 0)) for name in MIG_ATTRIBUTES}


def invalid_labels(gpu: Gpu) -> Labels:
    """Return the labels for MIG devices that differ with the strategy ``single``; *gpu* is the first GPU with MIG."""
    return _base(GPU_RESOURCE, 0, (gpu.name, _MIG, _INVALID), _NOTHING_OFFERED) | {f"{GPU_RESOURCE}.memory": "0"}


def _base(resource: str, count: int, parts: Sequence[str], shares: Shares) -> Labels:
    labels = {
        f"{resource}.count": str(count),
        f"{resource}.replicas": str(shares.replicas),
        f"{resource}.sharing-strategy": shares.strategy,
    }
    if (name := product(parts, shared=shares.suffixed)) is not None:
        labels[f"{resource}.product"] = name
    return labels
