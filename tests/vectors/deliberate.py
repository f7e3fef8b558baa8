"""Where criproxy differs from NVIDIA's plugin on purpose: case by case, with the reason.

A key is the judging module and the case's id. Cases of other directories are not listed here: one that carries
``expect_if_honoured`` may pass by that, and the function ``by_rule`` of a judging module knows the other differences.
"""

from dataclasses import dataclass
from typing import Any

MAX_DIFFERENCES = 40
"""More would no longer be a drop-in."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One case in which criproxy does not answer like NVIDIA."""

    reason: str
    expect: Any = None
    """What criproxy answers; None: the case's own ``expect_if_honoured``."""


_GPU_0 = "GPU-00000000-0000-4000-8000-000000000000"
_GPU_1 = "GPU-00000001-0000-4000-8000-000000000001"

_RENAME = Difference("NVIDIA parses `rename` and ignores it; here it works")
_DEVICES = Difference("NVIDIA parses `devices` and ignores it; here it works")
_RESOURCES = Difference("NVIDIA parses `resources` and ignores it; here it works")

DELIBERATE: dict[str, Difference] = {
    "resources:res-ts-explicit-rename": _RENAME,
    "resources:res-ts-devices-index": _DEVICES,
    "resources:res-ts-devices-index-rename": _DEVICES,
    "resources:res-ts-devices-uuid-unknown": _DEVICES,
    "resources:res-ts-devices-index-unknown": _DEVICES,
    "resources:res-ts-devices-empty-list": _DEVICES,
    "resources:res-ts-devices-repeat": _DEVICES,
    "resources:res-ts-same-name-split": Difference(
        "the answer of NVIDIA's code without its drop step offers a card whole and shared at once",
        expect={
            "resources": {"nvidia.com/gpu": [f"{_GPU_0}::0", f"{_GPU_0}::1", *(f"{_GPU_1}::{n}" for n in range(4))]}
        },
    ),
    "resources:mig-mixed-devices-mig-index": _DEVICES,
    "resources:pat-two-models": _RESOURCES,
    "resources:pat-first-match-wins": _RESOURCES,
    "resources:pat-with-sharing": _RESOURCES,
    "resources:pat-mig": _RESOURCES,
}
