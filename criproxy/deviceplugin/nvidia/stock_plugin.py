"""What NVIDIA's own plugin makes of a configuration: it drops what it does not support yet, with a warning.

criproxy does what the file says. The comparison shows what changes if a node moves from one plugin to the other.
"""

from dataclasses import replace

from criproxy.deviceplugin.nvidia.file.names import shared_name
from criproxy.deviceplugin.nvidia.options import PluginConfig, SharedResources, Sharing


def as_nvidia_uses(config: PluginConfig) -> PluginConfig:
    """Return *config* without custom resources, names of shared resources, and selections of cards."""
    return replace(
        config,
        gpu_resources=(),
        mig_resources=(),
        sharing=Sharing(time_slicing=_plain(config.sharing.time_slicing), mps=_plain(config.sharing.mps)),
    )


def ignored_by_nvidia(config: PluginConfig) -> list[str]:
    """Return the keys of *config* that NVIDIA's plugin parses and then ignores."""
    ignored = []
    if config.gpu_resources or config.mig_resources:
        ignored.append("resources")
    parts = (("sharing.timeSlicing", config.sharing.time_slicing), ("sharing.mps", config.sharing.mps))
    for key, shared in parts:
        plain = _plain(shared)
        if shared is None or plain is None:
            continue
        pairs = list(zip(shared.resources, plain.resources, strict=True))
        if any(configured.rename != used.rename for configured, used in pairs):
            ignored.append(f"{key}.resources[].rename")
        if any(configured.devices != used.devices for configured, used in pairs):
            ignored.append(f"{key}.resources[].devices")
    return ignored


def _plain(shared: SharedResources | None) -> SharedResources | None:
    if shared is None:
        return None
    resources = tuple(
        replace(resource, devices="all", rename=shared_name(resource.name) if shared.rename_by_default else "")
        for resource in shared.resources
    )
    return replace(shared, resources=resources)
