"""What NVIDIA's own programs do otherwise than criproxy, so that their cases can be judged.

NVIDIA's plugin drops what it does not support yet, and criproxy does what the file says.
"""

import re
from typing import TypeVar

from criproxy.deviceplugin.nvidia.options import PluginConfig, Resources, SharedResources
from criproxy.deviceplugin.nvidia.xids import Place
from criproxy.devices.classes.offers import SHARED_SUFFIX

S = TypeVar("S", bound=SharedResources)
_OLD_MIG_UUID = re.compile(r"MIG-(GPU-[^/]+)/([0-9]{1,9})/([0-9]{1,9})")
"""The UUID of drivers before R470, which contains the GPU and both instances."""


def as_nvidia_uses(config: PluginConfig) -> PluginConfig:
    """Return *config* without custom resources, names of shared resources, and selections of cards."""
    parts = {"time_slicing": _plain(config.sharing.time_slicing), "mps": _plain(config.sharing.mps)}
    return config.model_copy(update={"resources": Resources(), "sharing": config.sharing.model_copy(update=parts)})


def _plain(shared: S | None) -> S | None:
    if shared is None:
        return None
    resources = tuple(
        resource.model_copy(
            update={"devices": "all", "rename": f"{resource.name}{SHARED_SUFFIX}" if shared.rename_by_default else ""}
        )
        for resource in shared.resources
    )
    return shared.model_copy(update={"resources": resources})


def place_in(uuid: str) -> Place | None:
    """Return the place in the UUID of a MIG device itself, for drivers that cannot be queried; None if it has none."""
    found = _OLD_MIG_UUID.fullmatch(uuid)
    return Place(found[1], int(found[2]), int(found[3])) if found else None
