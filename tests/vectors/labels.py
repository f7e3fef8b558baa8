"""Which labels a node gets, and where they are written: ``labels.yaml``."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from criproxy.deviceplugin.labels.feature_file import FILE_MODE, feature_file
from criproxy.deviceplugin.nvidia.file.load import load
from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.deviceplugin.nvidia.labels.label_output import (
    FileOutput,
    NodeFeatureOutput,
    Output,
    StandardOutput,
    output,
)
from criproxy.deviceplugin.nvidia.labels.labels import LabelError, Machine, VgpuGuest, labels, timestamp_label
from criproxy.deviceplugin.nvidia.labels.product import sanitised
from criproxy.deviceplugin.nvidia.options import Flags, GfdFlags, PluginConfig
from tests.vectors.cards import gpus_of
from tests.vectors.deliberate import Difference
from tests.vectors.nvidia_ways import as_nvidia_uses, ignored_by_nvidia

Case = Mapping[str, Any]
NOT_IGNORED = "what NVIDIA parses but ignores works, and the labels say so"
_STAMP = "gfd.timestamp"
STARTED_S = 1_760_000_000.9
_NODE = "<node>"
_OBJECT = "NodeFeature"
_TARGETS = {FileOutput: "file", StandardOutput: "stdout", NodeFeatureOutput: _OBJECT}
_A_GPU = Gpu(index=0, uuid="GPU-0", name="Tesla T4", memory_mib=15360, compute_capability=(7, 5), minor=0)
_ENDINGS = {
    "loop": Flags(use_node_feature_api=False),
    "oneshot": Flags(use_node_feature_api=False, gfd=GfdFlags(oneshot=True)),
    "infinite": Flags(use_node_feature_api=False, gfd=GfdFlags(sleep_interval_ns=None)),
    "stdout": Flags(use_node_feature_api=False, gfd=GfdFlags(output_file="")),
    _OBJECT: Flags(use_node_feature_api=True),
}
"""What a run of NVIDIA's program is like, by the words of the vectors."""
_SAYS_HOW = ("file", "config", "args", "env")
"""Where a case has the flags; those that have none of them tell by what they expect."""


def judge(case: Case, whole: Case) -> str | None:
    """What differs from ``expect``; None: nothing does."""
    match case["kind"]:
        case "labels":
            return _set(case, whole, _config(case))
        case "sanitise":
            return _differs(sanitised(case["input"]), case["expect"])
        case "output":
            return _output(case)
        case "timestamp":
            return _timestamp(case)
        case _:
            return _init(case)


def by_rule(case: Case, whole: Case) -> Difference | None:
    """NVIDIA's labels follow from what its plugin does, ours from what ours does: both by the same rules."""
    if case["kind"] != "labels" or not ignored_by_nvidia(config := _config(case)):
        return None
    if _set(case, whole, as_nvidia_uses(config)) is not None:
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
    """As feature discovery loads it: a flag that the plugin requires of MPS need not be there."""
    return load(case.get("config"), program="gfd")


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
    if "error" in expected:
        return _refused(case, expected["error"])
    if "removed" in expected:
        return _differs({name: _removed(_ENDINGS[name]) for name in expected["removed"]}, expected["removed"])
    found: dict[str, Any] = {}
    if "input" in case:
        found |= {"lines": sorted(feature_file(case["input"]).splitlines()), "mode": f"{FILE_MODE:04o}"}
    if "target" in expected:
        found |= _target(case)
    return _differs_in_parts(found, {key: value for key, value in expected.items() if key != "needs"})


def _refused(case: Case, error: str) -> str | None:
    node_name = "" if "node-name" in error else _NODE
    namespace = "" if "namespace" in error else "default"
    return _error_of(lambda: output(_flags(case, _OBJECT), node_name=node_name, namespace=namespace), error)


def _target(case: Case) -> dict[str, Any]:
    target = str(case["expect"]["target"])
    where = output(_flags(case, target), node_name=_NODE)
    return {"target": _TARGETS[type(where)], **_parts(where)}


def _flags(case: Case, target: str) -> Flags:
    if any(key in case for key in _SAYS_HOW) or target == _OBJECT:
        return _loaded(case).flags
    return _ENDINGS["stdout" if "std" in target else "loop"]


def _loaded(case: Case) -> PluginConfig:
    return load(case.get("file", case.get("config")), case.get("args", ()), case.get("env"), program="gfd")


def _parts(where: Output) -> dict[str, Any]:
    match where:
        case FileOutput():
            return {"path": where.path, "mode": f"{FILE_MODE:04o}"}
        case NodeFeatureOutput():
            return {"name": where.name, "namespace": where.namespace, "object_label": "=".join(where.label)}
        case _:
            return {}


def _removed(flags: Flags) -> bool:
    where = output(flags, node_name=_NODE)
    return isinstance(where, FileOutput) and where.removed_on_exit


def _timestamp(case: Case) -> str | None:
    """The time is an argument, so that later rounds have that of the first."""
    expected = case["expect"]
    flags = _loaded(case).flags.gfd
    if not any(key in case for key in _SAYS_HOW) and _STAMP not in str(expected):
        flags = GfdFlags(no_timestamp=True)
    stamp = timestamp_label(flags, STARTED_S)
    found: dict[str, Any] = {"keys": sorted(stamp | labels(Machine(), PluginConfig()))}
    if "key" in expected:
        found |= {"key": next(iter(stamp), None), "changes_between_rounds": timestamp_label(flags, STARTED_S) != stamp}
    if "pattern" in expected:
        found["pattern"] = expected["pattern"] if all(_fits(expected["pattern"], stamp.values())) else stamp
    return _differs_in_parts(found, expected)


def _fits(pattern: str, values: Iterable[str]) -> list[bool]:
    return [re.search(pattern, value) is not None for value in values]


def _init(case: Case) -> str | None:
    """What becomes of a start; the expectation says which strategy is wrong, or that there is no NVML."""
    expected = case["expect"]
    error = str(expected.get("error", ""))
    strategy = error.removeprefix("unknown strategy: ") if error.startswith("unknown strategy") else "none"
    machine = Machine(gpus=(_A_GPU,), driver_version="550.54.15", init_error="" if strategy != "none" else "no driver")
    config = PluginConfig(flags=Flags(mig_strategy=strategy, fail_on_init_error=bool(error)))  # type: ignore[arg-type]
    if error:
        return _error_of(lambda: labels(machine, config), error)
    found = labels(machine, config)
    stamp = timestamp_label(config.flags.gfd, STARTED_S)
    return _differs_in_parts({"labels": found, "keys": sorted(found | stamp), "error": None}, expected)


def _error_of(call: Callable[[], object], expected: str) -> str | None:
    try:
        found = call()
    except LabelError as error:
        return None if expected in str(error) else f"found the error {error}"
    return f"found {found!r}, expected the error {expected!r}"


def _differs(found: object, expected: object) -> str | None:
    return None if found == expected else f"found {found!r}, expected {expected!r}"


def _differs_in_parts(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    return _differs({key: found.get(key) for key in expected}, expected)
