"""Judges how a configuration is read, and which of several files is chosen."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from criproxy.cli.operate.device_plugin import command, nvidia_flags
from criproxy.deviceplugin.configuration.nvidia_file import choose, read
from criproxy.deviceplugin.nvidia.options import INFINITE, PluginConfig, ResourcePattern, SharedResources
from criproxy.deviceplugin.nvidia.settings import overrides
from criproxy.errors import ConfigError
from tests.vectors.deliberate import OWN_WORDS, Difference
from tests.vectors.nvidia_ways import as_nvidia_uses

Case = Mapping[str, Any]

SECTIONS = ("resources.gpus", "resources.mig", "sharing.timeSlicing", "sharing.mps", "imex.channelIDs", "imex.required")
"""What a result may have besides flags."""
_SLEEP = "flags.gfd.sleepInterval"
_BY_FLAGS = Difference("not judged: criproxy has no flags for a default and fallbacks", "not judged")


def judge(case: Case, whole: Case) -> str | None:
    """None if *case* passes, else what differs."""
    return _select(case) if case["kind"] == "select" else _load(case, whole)


def by_rule(case: Case, whole: Case) -> Difference | None:
    """A choice by what the command line of NVIDIA's config-manager says."""
    by_default = ["named", "single", "empty"]
    is_ours = case.get("label") or (not case.get("default_config") and case.get("fallback_strategies") == by_default)
    return _BY_FLAGS if case["kind"] == "select" and not is_ours else None


def _load(case: Case, whole: Case) -> str | None:
    try:
        given = nvidia_flags(dict(command.make_context("device-plugin", [*case.get("args", ())]).params))
    except click.UsageError as error:
        return _judge_error(case, (error.format_message(),))
    contents = read(case.get("file", ""), [*overrides(given, case.get("env", {}))])
    config = contents.config
    if config is None:
        return _judge_error(case, contents.mistakes)
    if case["expect"] not in ("ok", "accepted"):
        return f"it is accepted, but expected is {case['expect']!r} with {case.get('error')!r}"
    if case["expect"] == "accepted":
        return None
    defaults = {key: value for key, value in whole[f"defaults_{case['kind']}"].items() if key != _NOT_OURS}
    expected = {**defaults, **case["result"]}
    flags = {key: _comparable(key, value) for key, value in expected.items() if key.startswith("flags.")}
    wrong = _difference(_flags(config, expected), flags)
    wrong = wrong or _difference(_sections(config), _plain_sections(expected))
    if wrong is None and "stock_effective" in case:
        stock = _plain_sections({**expected, **case["stock_effective"]})
        wrong = _difference(_sections(as_nvidia_uses(config)), stock)
    if wrong is None and config.sharing.strategy != case.get("sharing_strategy", config.sharing.strategy):
        wrong = f"the sharing strategy is {config.sharing.strategy}, expected is {case['sharing_strategy']}"
    return wrong


def _judge_error(case: Case, mistakes: Sequence[str]) -> str | None:
    if case["expect"] == "refused":
        return None
    if case["expect"] != "error":
        return f"expected is no error, but: {mistakes}"
    error = str(case.get("error", ""))
    fragment = next((words for beginning, words in OWN_WORDS.items() if error.startswith(beginning)), error)
    if case.get("error_class") in ("type", "syntax") or any(fragment in mistake for mistake in mistakes):
        return None
    return f"the mistakes are {mistakes}, expected is {case['error']!r}"


_NOT_OURS = "flags.useNodeFeatureAPI"
"""It decides whether labels are written to the API, which criproxy never does."""


def _flags(config: PluginConfig, expected: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that the case has an opinion on; the plugin drops those of GPU feature discovery."""
    flags = _nested(config.model_dump(by_alias=True)["flags"], "flags")
    return {key: _comparable(key, value) for key, value in flags if key in expected}


def _nested(data: Mapping[str, Any], where: str) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name, value in data.items():
        key = f"{where}.{name}"
        pairs.extend(_nested(value, key) if isinstance(value, dict) else [(key, value)])
    return pairs


def _comparable(key: str, value: object) -> object:
    """Of an interval, criproxy uses whether it is infinite."""
    return value == INFINITE if key == _SLEEP else _plain(value)


def _sections(config: PluginConfig) -> dict[str, Any]:
    found = {
        "resources.gpus": _patterns(config.resources.gpus),
        "resources.mig": _patterns(config.resources.mig),
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
    if case["expect"] == "not judged":
        return None
    names = [name for name in case["files"] if not name.startswith("..")]
    try:
        name, _ = choose(names, case.get("label") or "")
    except ConfigError as error:
        is_said = case["expect"] == "error" and case["error"] in str(error)
        return None if is_said else f"the error is {str(error)!r}, expected is {case.get('error')!r}"
    if case["expect"] != "ok":
        return f"{name!r} is chosen, but expected is an error with {case['error']!r}"
    return _difference({"config": name}, {"config": case["result"]["config"]})
