"""The labels of one of NVIDIA's resources: whole GPUs of a model, or MIG devices of a profile."""

from collections.abc import Sequence
from dataclasses import dataclass

from criproxy.deviceplugin.nvidia.gpus import Gpu, MigDevice
from criproxy.deviceplugin.nvidia.labels.product import family, product, profile_word
from criproxy.deviceplugin.nvidia.options import SharedResource, Sharing

GPU = "nvidia.com/gpu"
MIG_ATTRIBUTES = (
    *("slices.gi", "slices.ci", "multiprocessors"),
    *("engines.copy", "engines.decoder", "engines.encoder", "engines.jpeg", "engines.ofa"),
)
"""The labels of MIG devices in addition to their memory; 0 for what NVML does not report."""
_MIG = "MIG"
_INVALID = "INVALID"

Labels = dict[str, str]


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
    if (entry := _entry(resource, sharing)) is None or entry.replicas <= 1:
        return Shares()
    renamed = bool(entry.rename) or (sharing.shared is not None and sharing.shared.rename_by_default)
    return Shares(entry.replicas, sharing.strategy, renamed)


def gpu_labels(gpu: Gpu, count: int, shares: Shares) -> Labels:
    """Return the labels of *count* whole GPUs of one model, of which *gpu* is one."""
    labels = _base(GPU, count, (gpu.name,), shares)
    if gpu.memory_mib:
        labels[f"{GPU}.memory"] = str(gpu.memory_mib)
    major, minor = gpu.compute_capability
    if major:
        labels |= {
            f"{GPU}.family": family(gpu.compute_capability),
            f"{GPU}.compute.major": str(major),
            f"{GPU}.compute.minor": str(minor),
        }
    return labels


def mig_labels(resource: str, parent: Gpu, devices: Sequence[MigDevice], shares: Shares) -> Labels:
    """Return the labels of *devices* of one profile, the first of which is a part of *parent*."""
    first = devices[0]
    attributes = dict(first.attributes)
    labels = _base(resource, len(devices), (parent.name, _MIG, profile_word(first.profile)), shares)
    labels[f"{resource}.memory"] = str(first.memory_mib)
    return labels | {f"{resource}.{name}": str(attributes.get(name, 0)) for name in MIG_ATTRIBUTES}


def invalid_labels(gpu: Gpu) -> Labels:
    """Return the labels for MIG devices that differ with the strategy ``single``; *gpu* is the first GPU with MIG."""
    return _base(GPU, 0, (gpu.name, _MIG, _INVALID), _NOTHING_OFFERED) | {f"{GPU}.memory": "0"}


def _base(resource: str, count: int, parts: Sequence[str], shares: Shares) -> Labels:
    labels = {
        f"{resource}.count": str(count),
        f"{resource}.replicas": str(shares.replicas),
        f"{resource}.sharing-strategy": shares.strategy,
    }
    if (name := product(parts, shared=shares.suffixed)) is not None:
        labels[f"{resource}.product"] = name
    return labels


def _entry(resource: str, sharing: Sharing) -> SharedResource | None:
    entries = sharing.shared.resources if sharing.shared is not None else ()
    return next((entry for entry in entries if entry.name == resource), None)
