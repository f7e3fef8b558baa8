"""The keys of NVIDIA's file, and which of them a mistyped one may mean."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Keys:
    """The known keys of a mapping, with the keys below them."""

    below: Mapping[str, "Keys | None"]
    any_case: bool = True


def _names(names: str) -> dict[str, Keys | None]:
    return dict.fromkeys(names.split())


_SHARED = Keys(_names("name rename devices replicas"), any_case=False)
_PART = Keys({**_names("renameByDefault failRequestsGreaterThanOne"), "resources": _SHARED}, any_case=False)
_PATTERN = Keys(_names("pattern name"), any_case=False)
_PLUGIN = Keys(
    _names(
        "passDeviceSpecs deviceListStrategy deviceIDStrategy cdiAnnotationPrefix nvidiaCTKPath containerDriverRoot "
        "sharedDevicesAllocationPolicy"
    )
)
_GFD = Keys(_names("oneshot noTimestamp sleepInterval outputFile machineTypeFile"))
_SHARING = Keys({"timeSlicing": _PART, "mps": _PART})
_FLAGS = Keys(
    {
        **_names("migStrategy failOnInitError mpsRoot nvidiaDriverRoot nvidiaDevRoot gdrcopyEnabled gdsEnabled"),
        **_names("mofedEnabled useNodeFeatureAPI deviceDiscoveryStrategy"),
        "plugin": _PLUGIN,
        "gfd": _GFD,
    }
)
KNOWN = Keys(
    {
        "version": None,
        "flags": _FLAGS,
        "resources": Keys({"gpus": _PATTERN, "mig": _PATTERN}),
        "sharing": _SHARING,
        "imex": Keys(_names("channelIDs required")),
    }
)
"""The keys of the whole file."""


def meant_at_the_top(key: str) -> str:
    """Return the known key that may be meant by *key* at the top of the file; empty if there is none."""
    return close_key(key, "", KNOWN)


def close_key(key: str, where: str, keys: Keys) -> str:
    """Return the known key that may be meant: of the same mapping, or at the top of a section, as in Helm values."""
    for section, inner in (("flags", _FLAGS), ("flags.plugin", _PLUGIN), ("sharing", _SHARING)) if not where else ():
        if key in inner.below:
            return f"{section}.{key}"
    close = get_close_matches(key, keys.below, n=1)
    return close[0] if close else ""
