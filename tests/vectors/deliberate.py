"""Where criproxy differs from NVIDIA's plugin on purpose: case by case, with the reason.

A key is the judging module and the case's id. Cases of other directories are not listed here: one that carries
``expect_if_honoured`` may pass by that, and the function ``by_rule`` of a judging module knows the other differences.
"""

from dataclasses import dataclass
from typing import Any

MAX_DIFFERENCES = 40
"""More would no longer be a drop-in."""
OWN_WORDS = {
    'could not parse "0,x" as int slice': "must be a whole number, not 'x'",
    "flag provided but not defined: -": "No such option '--",
    "invalid deviceListStrategy: 5": "must be a list, such as [a, b], not 5",
    "no replicas specified": "replicas' is missing",
    "no resource name specified": "name' is missing",
    "resources must have a 'name' field set": "name' is missing",
    'time: unknown unit "d"': "invalid duration; write a number with a unit",
}
"""Beginnings of NVIDIA's messages about mistakes that criproxy reports in its own words."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One case in which criproxy does not answer like NVIDIA."""

    reason: str
    expect: Any = None
    """What criproxy answers; None: the case's own ``expect_if_honoured``."""


_RENAME = Difference("NVIDIA parses `rename` and ignores it; here it works")
_DEVICES = Difference("NVIDIA parses `devices` and ignores it; here it works")
_NO_DEVICES = "`devices` works here, so an empty list is a mistake"
_RESOURCES = Difference("NVIDIA parses `resources` and ignores it; here it works")
ALL_CONCERNED = "an XID marks every replica and every MIG device that it concerns, and not one of them by chance"
_FIRST, _SECOND = (f"GPU-{number:08x}-0000-4000-8000-{number:012x}" for number in range(2))
_MIG_DEVICES = [f"MIG-00000000-0000-5000-8000-{number:012x}" for number in range(2)]
_REPLICAS = [f"{_SECOND}::{number}" for number in range(3)]
_XID_OF_REPLICAS = Difference(ALL_CONCERNED, {"unhealthy": _REPLICAS, "registered_masks": {_FIRST: 11, _SECOND: 11}})
_XID_OF_MIG_DEVICES = Difference(ALL_CONCERNED, {"unhealthy": _MIG_DEVICES, "registered_masks": {_FIRST: 11}})
_STRICT_YAML = Difference(
    "the file is read as a policy file is: what YAML libraries read differently is a mistake", "refused"
)
_CAPITALS = Difference("a key with other capitals is a mistake, and neither accepted nor ignored", "refused")
_QUOTES = Difference("true, false and numbers may be in quotes", "accepted")
_NULL = "a key whose value is null counts as absent"
_ONE_PROGRAM = "criproxy is plugin and feature discovery at once"
_REFUSED_BY_ONE = Difference(f"{_ONE_PROGRAM}: what NVIDIA's plugin refuses is refused", "refused")
_ONE_FILE = "criproxy writes the file that the policy file names, never to standard output or to the API"

DELIBERATE: dict[str, Difference] = {
    "config:json-tabs": _STRICT_YAML,
    "config:duplicate-key": _STRICT_YAML,
    "config:yaml-replicas-octal": _STRICT_YAML,
    "config:yaml-replicas-octal-new": _STRICT_YAML,
    "config:yaml-merge-key": _STRICT_YAML,
    "config:case-insensitive-struct-key": _CAPITALS,
    "config:bool-as-string": _QUOTES,
    "config:imex-string": _QUOTES,
    "config:devices-null": Difference(_NULL, "accepted"),
    "config:devices-empty-list": Difference(_NO_DEVICES, "refused"),
    "config:ts-replicas-null": Difference(_NULL, "refused"),
    "config:devices-uuid-no-dash": Difference("UUIDs have their dashes, as NVML writes them", "refused"),
    "config:ts-replicas-huge": Difference("the kubelet has to list all replicas: they have a limit", "refused"),
    "config:gfd-cli-over-file": Difference(f"{_ONE_PROGRAM}: it has no flags for feature discovery", "refused"),
    "config:gfd-env-two-names": Difference(f"{_ONE_PROGRAM}: both have one MIG strategy", "accepted"),
    "config:gfd-discovery-vfio": _REFUSED_BY_ONE,
    "config:gfd-mps-no-root": _REFUSED_BY_ONE,
    "labels:out-default-target": Difference(_ONE_FILE, {"target": "file"}),
    "labels:out-no-node-name": Difference(_ONE_FILE, {"target": "file"}),
    "labels:out-remove-on-exit": Difference(
        _ONE_FILE, {"removed": {"loop": True, "oneshot": False, "infinite": False, "stdout": True, "NodeFeature": True}}
    ),
    "resources:res-ts-explicit-rename": _RENAME,
    "resources:res-ts-devices-index": _DEVICES,
    "resources:res-ts-devices-index-rename": _DEVICES,
    "resources:res-ts-devices-uuid-unknown": _DEVICES,
    "resources:res-ts-devices-index-unknown": _DEVICES,
    "resources:res-ts-devices-empty-list": Difference(_NO_DEVICES, {"error": "which shares no card"}),
    "resources:res-ts-devices-repeat": _DEVICES,
    "resources:res-ts-same-name-split": Difference(
        "the answer of NVIDIA's code without its drop step offers a card whole and shared at once",
        expect={
            "resources": {"nvidia.com/gpu": [f"{_FIRST}::0", f"{_FIRST}::1", *(f"{_SECOND}::{n}" for n in range(4))]}
        },
    ),
    "resources:mig-mixed-devices-mig-index": _DEVICES,
    "resources:pat-two-models": _RESOURCES,
    "resources:pat-first-match-wins": _RESOURCES,
    "resources:pat-with-sharing": _RESOURCES,
    "resources:pat-mig": _RESOURCES,
    "health:ev-replicas": _XID_OF_REPLICAS,
    "health:ev-mig-two-instances-whole": _XID_OF_MIG_DEVICES,
}
