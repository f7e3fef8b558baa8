"""The cards and the configuration of a case, as criproxy's own values."""

from collections.abc import Mapping
from typing import Any

import yaml

from criproxy.deviceplugin.configuration.nvidia_file import read
from criproxy.deviceplugin.nvidia.gpus import Fabric, Gpu, MigDevice
from criproxy.deviceplugin.nvidia.options import PluginConfig
from tests.deviceplugin.nvidia.files import config_of

COMPUTE_CLASS = 0x030200


def gpus_of(case: Mapping[str, Any], whole: Mapping[str, Any]) -> tuple[Gpu, ...]:
    """The GPUs of *case*; what an entry leaves out is made up from its position."""
    return tuple(_gpu(entry, position) for position, entry in enumerate(case.get("gpus", ())))


def _gpu(entry: Mapping[str, Any], position: int) -> Gpu:
    index = entry.get("index", position)
    major, _, minor = str(entry.get("compute_capability", "0.0")).partition(".")
    numa = entry.get("numa")
    return Gpu(
        index=index,
        uuid=entry.get("uuid", f"GPU-{index:08x}-0000-4000-8000-{index:012x}"),
        name=entry.get("name", ""),
        memory_mib=0 if entry.get("memory_error") else entry.get("memory_mib", 0),
        compute_capability=(int(major), int(minor or 0)),
        minor=entry.get("minor", index),
        pci_bus_id=entry.get("pci_bus_id", ""),
        numa_node=None if numa is None or numa < 0 else numa,
        mig_capable=entry.get("mig_capable", False),
        mig_enabled=entry.get("mig_enabled", False),
        mig=tuple(_mig(part, index, at) for at, part in enumerate(entry.get("mig", ()))),
        pci_class=None if entry.get("pci_class_error") else entry.get("pci_class", COMPUTE_CLASS),
        fabric=_fabric(entry.get("fabric") or {}),
    )


def _fabric(entry: Mapping[str, Any]) -> Fabric | None:
    if "cluster_uuid" not in entry:
        return None
    return Fabric(cluster_uuid=str(entry["cluster_uuid"]), clique_id=str(entry.get("clique_id", "")))


def _mig(entry: Mapping[str, Any], gpu_index: int, position: int) -> MigDevice:
    slices = {f"slices.{kind}": entry[f"slices_{kind}"] for kind in ("gi", "ci") if f"slices_{kind}" in entry}
    attributes = slices | entry.get("attributes", {})
    return MigDevice(
        uuid=entry.get("uuid", f"MIG-{gpu_index:08x}-0000-5000-8000-{position:012x}"),
        profile=entry["profile"],
        gi=entry.get("gi", position),
        ci=entry.get("ci", 0),
        index=entry.get("index", position),
        memory_mib=entry.get("memory_mib", 0),
        attributes=tuple(attributes.items()),
    )


def config_of_case(case: Mapping[str, Any]) -> PluginConfig:
    """The configuration of *case*; in some, a section stands twice, and the last one counts for NVIDIA."""
    text = case["config"] or ""
    if "'flags' is given twice" in str(read(text).mistakes):
        text = yaml.safe_dump(yaml.safe_load(text))
    return config_of(text)
