"""Judges how a configuration is read, and which of several files is chosen."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from criproxy.deviceplugin.nvidia.file.flags import Program
from criproxy.deviceplugin.nvidia.file.load import load, loaded_values
from criproxy.deviceplugin.nvidia.file.selection import config_names
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError
from criproxy.deviceplugin.nvidia.go.durations import INFINITE
from criproxy.deviceplugin.nvidia.options import PluginConfig, ResourcePattern, SharedResources
from tests.vectors.nvidia_ways import as_nvidia_uses, choose_as_config_manager, duration_text

Case = Mapping[str, Any]

SECTIONS = ("resources.gpus", "resources.mig", "sharing.timeSlicing", "sharing.mps", "imex.channelIDs", "imex.required")
"""What a result may have besides flags."""


def judge(case: Case, whole: Case) -> str | None:
    """None if *case* passes, else what differs."""
    return _select(case) if case["kind"] == "select" else _load(case, whole)


def _load(case: Case, whole: Case) -> str | None:
    program = cast("Program", case["kind"])
    text, args, env = case.get("file"), case.get("args", ()), case.get("env", {})
    try:
        config = load(text, args, env, program=program, has_nvml=case.get("nvml", True), read=_read)
    except PluginConfigError as error:
        return _judge_error(case, error)
    if case["expect"] != "ok":
        return f"it is accepted, but expected is an error with {case.get('error')!r}"
    _, values = loaded_values(text, args, env, program=program, read=_read)
    expected = {**whole[f"defaults_{program}"], **case["result"]}
    wrong = _difference(_flags(values, program), {k: v for k, v in expected.items() if k.startswith("flags.")})
    wrong = wrong or _difference(_sections(config), _plain_sections(expected))
    if wrong is None and "stock_effective" in case:
        stock = _plain_sections({**expected, **case["stock_effective"]})
        wrong = _difference(_sections(as_nvidia_uses(config)), stock)
    if wrong is None and config.sharing.strategy != case.get("sharing_strategy", config.sharing.strategy):
        wrong = f"the sharing strategy is {config.sharing.strategy}, expected is {case['sharing_strategy']}"
    return wrong


def _read(name: str) -> str:
    return Path(name).read_text(encoding="utf-8")


def _judge_error(case: Case, error: PluginConfigError) -> str | None:
    if case["expect"] != "error":
        return f"expected is no error, but: {error}"
    said = (error.stage, error.mistake_class)
    expected = (case.get("stage", error.stage), case.get("error_class", error.mistake_class))
    if said != expected:
        return f"the error is of {said}, expected is {expected}: {error}"
    if case.get("error", "") not in str(error) and case.get("error_class") not in ("type", "syntax"):
        return f"the error is {str(error)!r}, expected is {case['error']!r}"
    return None


def _flags(values: Mapping[str, Any], program: Program) -> dict[str, Any]:
    """The flags as results write them; the plugin drops those of GPU feature discovery."""
    flags = {key: value for key, value in values.items() if key.startswith("flags.")}
    if program == "plugin":
        return {key: _plain(value) for key, value in flags.items() if not key.startswith("flags.gfd.")}
    sleep = "flags.gfd.sleepInterval"
    return {key: _plain(value) for key, value in flags.items()} | {sleep: duration_text(flags.get(sleep, INFINITE))}


def _sections(config: PluginConfig) -> dict[str, Any]:
    found = {
        "resources.gpus": _patterns(config.gpu_resources),
        "resources.mig": _patterns(config.mig_resources),
        "sharing.timeSlicing": _shared(config.sharing.time_slicing),
        "sharing.mps": _shared(config.sharing.mps),
        "imex.channelIDs": list(config.imex.channel_ids),
        "imex.required": config.imex.required,
    }
    return {key: value for key, value in found.items() if value}


def _plain_sections(expected: Mapping[str, Any]) -> dict[str, Any]:
    """What is *expected* of all but flags; "no" and "not set" are the same here."""
    found = {key: expected[key] for key in SECTIONS if expected.get(key)}
    for key in ("sharing.timeSlicing", "sharing.mps"):
        if key in found:
            found[key] = {"renameByDefault": False, "failRequestsGreaterThanOne": False, **found[key]}
    return found


def _patterns(patterns: tuple[ResourcePattern, ...]) -> list[dict[str, str]]:
    return [{"pattern": entry.pattern, "name": entry.name} for entry in patterns]


def _shared(shared: SharedResources | None) -> dict[str, Any] | None:
    if shared is None:
        return None
    return {
        "renameByDefault": shared.rename_by_default,
        "failRequestsGreaterThanOne": shared.fail_requests_greater_than_one,
        "resources": [
            {"name": entry.name, "devices": _plain(entry.devices), "replicas": entry.replicas}
            | ({"rename": entry.rename} if entry.rename else {})
            for entry in shared.resources
        ],
    }


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    """The first key that differs; one that is null is the same as one that is not there."""
    for key in sorted({*found, *expected}):
        if found.get(key) != expected.get(key):
            return f"{key} is {found.get(key)!r}, expected is {expected.get(key)!r}"
    return None


def _select(case: Case) -> str | None:
    try:
        choice = choose_as_config_manager(
            config_names(case["files"]),
            case.get("label") or "",
            case.get("default_config") or "",
            case.get("fallback_strategies") or (),
        )
        changed = _link_changes(case, choice.name)
    except PluginConfigError as error:
        if case["expect"] == "error" and case["error"] in str(error):
            return None
        return f"the error is {str(error)!r}, expected is {case.get('error')!r}"
    found = {
        "config": choice.name,
        "changed": changed,
        "link": f"src/{choice.name}" if choice.name else "/dev/null",
    }
    if case["expect"] != "ok":
        return f"{choice.name!r} is chosen, but expected is an error with {case['error']!r}"
    return _difference(found, case["result"])


def _link_changes(case: Case, chosen: str) -> bool:
    """Whether the link is set anew; NVIDIA cannot replace one that leads nowhere."""
    current = case.get("current")
    if current and current not in case["files"]:
        raise PluginConfigError("error creating symlink", mistake_class="file")
    return current is None or current != chosen
