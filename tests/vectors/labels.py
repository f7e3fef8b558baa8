"""Which labels a node gets, and where they are written: ``labels.yaml``."""

import re
from collections.abc import Mapping
from typing import Any

from criproxy.deviceplugin.labels import FILE_MODE, feature_file
from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.deviceplugin.nvidia.labels import LabelError, Machine, VgpuGuest, labels, sanitised, timestamp_label
from criproxy.deviceplugin.nvidia.options import INFINITE, Flags, GfdFlags, PluginConfig
from tests.deviceplugin.nvidia.files import config_of
from tests.vectors.cards import gpus_of
from tests.vectors.deliberate import Difference
from tests.vectors.nvidia_ways import as_nvidia_uses
from tests.vectors.resources import differs

Case = Mapping[str, Any]
NOT_IGNORED = "what NVIDIA parses but ignores works, and the labels say so"
_STAMP = "gfd.timestamp"
STARTED_S = 1_760_000_000.9
_A_GPU = Gpu(index=0, uuid="GPU-0", name="Tesla T4", memory_mib=15360, compute_capability=(7, 5), minor=0)
_ENDINGS = {"oneshot": GfdFlags(oneshot=True), "infinite": GfdFlags(sleep_interval=INFINITE)}
"""What a run of NVIDIA's program is like, by the words of the vectors; the others are loops, or have other outputs."""
_SAYS_HOW = ("file", "config", "args", "env")
"""Where a case has the flags; those that have none of them tell by what they expect."""


def judge(case: Case, whole: Case) -> str | None:
    """What differs from ``expect``; None: nothing does."""
    match case["kind"]:
        case "labels":
            return _set(case, whole, _config(case))
        case "sanitise":
            return differs(sanitised(case["input"]), case["expect"])
        case "output":
            return _output(case)
        case "timestamp":
            return _timestamp(case)
        case _:
            return _init(case)


def by_rule(case: Case, whole: Case) -> Difference | None:
    """NVIDIA's labels follow from what its plugin does, ours from what ours does: both by the same rules."""
    if case["kind"] != "labels":
        return None
    config = _config(case)
    stock = as_nvidia_uses(config)
    if stock == config or _set(case, whole, stock) is not None:
        return None
    return Difference(NOT_IGNORED, {"labels": labels(_machine(case, whole), config)})


def _set(case: Case, whole: Case, config: PluginConfig) -> str | None:
    expected = case["expect"]
    try:
        found = labels(_machine(case, whole), config)
    except LabelError as error:
        return None if expected.get("error", "\0") in str(error) else f"found the error {error}"
    if "error" in expected:
        return f"found labels, expected the error {expected['error']!r}"
    allowed = expected["any_of"] if "any_of" in expected else [expected["labels"]]
    return None if found in allowed else min((_first_difference(found, each) for each in allowed), key=len)


def _first_difference(found: Mapping[str, str], expected: Mapping[str, str]) -> str:
    keys = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    return "; ".join(f"{key}: found {found.get(key)!r}, expected {expected.get(key)!r}" for key in keys)


def _config(case: Case) -> PluginConfig:
    return config_of(case.get("config") or "", {}, {"MPS_ROOT": "/mps"})


def _machine(case: Case, whole: Case) -> Machine:
    named = case.get("machine_file_path", "/a/file") != ""
    return Machine(
        gpus=gpus_of(case, whole),
        driver_version=str(case.get("driver_version", "550.54.15")),
        cuda_version=tuple(case.get("cuda_version", (12, 4))),
        machine_type=case.get("machine_file") if named else None,
        vgpu=_guest(case.get("vgpu_guest")),
        init_error=str(case.get("nvml_init_error") or ""),
    )


def _guest(entry: Mapping[str, Any] | list[Mapping[str, Any]] | None) -> VgpuGuest | None:
    """Of several virtual GPUs, what the last says."""
    if not entry:
        return None
    last = entry[-1] if isinstance(entry, list) else entry
    return VgpuGuest(
        host_driver_version=str(last.get("host_driver_version", "")),
        host_driver_branch=str(last.get("host_driver_branch", "")),
    )


def _output(case: Case) -> str | None:
    """A case gives what it is about either as input or in its expectation, of which it fixes some parts."""
    expected = case["expect"]
    if "removed" in expected:
        found = {name: not _ENDINGS.get(name, GfdFlags()).outlives_program for name in expected["removed"]}
        return differs(found, expected["removed"])
    if "input" not in case:
        return differs({"target": "file"}, expected)
    lines = sorted(feature_file(case["input"]).splitlines())
    return _differs_in_parts({"lines": lines, "mode": f"{FILE_MODE:04o}"}, expected)


def _timestamp(case: Case) -> str | None:
    """The time is an argument, so that later rounds have that of the first."""
    expected = case["expect"]
    flags = config_of(case.get("file", case.get("config")) or "", {}, case.get("env")).flags.gfd
    if not any(key in case for key in _SAYS_HOW) and _STAMP not in str(expected):
        flags = GfdFlags(no_timestamp=True)
    stamp = timestamp_label(flags, STARTED_S)
    found: dict[str, Any] = {"keys": sorted(stamp | labels(Machine(), PluginConfig()))}
    if "key" in expected:
        found |= {"key": next(iter(stamp), None), "changes_between_rounds": timestamp_label(flags, STARTED_S) != stamp}
    if "pattern" in expected:
        fits = all(re.search(expected["pattern"], value) for value in stamp.values())
        found["pattern"] = expected["pattern"] if fits else stamp
    return _differs_in_parts(found, expected)


def _init(case: Case) -> str | None:
    """What becomes of a start; the expectation says which strategy is wrong, or that there is no NVML."""
    expected = case["expect"]
    error = str(expected.get("error", ""))
    strategy = error.removeprefix("unknown strategy: ") if error.startswith("unknown strategy") else "none"
    machine = Machine(gpus=(_A_GPU,), driver_version="550.54.15", init_error="" if strategy != "none" else "no driver")
    flags = Flags.model_construct(mig_strategy=strategy, fail_on_init_error=bool(error))
    config = PluginConfig(flags=flags)
    try:
        found = labels(machine, config)
    except LabelError as raised:
        return None if error and error in str(raised) else f"found the error {raised}"
    stamp = timestamp_label(config.flags.gfd, STARTED_S)
    return _differs_in_parts({"labels": found, "keys": sorted(found | stamp), "error": None}, expected)


def _differs_in_parts(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    return differs({key: found.get(key) for key in expected}, expected)
