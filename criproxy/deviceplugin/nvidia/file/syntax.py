"""Decodes NVIDIA's file ``version: v1``, with NVIDIA's messages for invalid content."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from criproxy.deviceplugin.nvidia.file.decode import (
    Decoder,
    fail_fast,
    fields_of,
    flag,
    integer,
    items_of,
    joined,
    json_text,
    mapping,
    named,
    text,
)
from criproxy.deviceplugin.nvidia.file.names import resource_name
from criproxy.deviceplugin.nvidia.file.sharing_syntax import sharing
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError
from criproxy.deviceplugin.nvidia.go.durations import Duration, parse_duration
from criproxy.deviceplugin.nvidia.go.numbers import INT64, shortest
from criproxy.deviceplugin.nvidia.go.yaml_like_go import Value, read_yaml
from criproxy.deviceplugin.nvidia.options import ResourcePattern, Sharing

VERSION = "v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContent:
    """The settings of a file."""

    flags: Mapping[str, Any] = field(default_factory=dict)
    """Values of `flags` and `imex` by dotted keys, such as ``flags.plugin.deviceIDStrategy``, if the file sets them."""
    gpu_resources: tuple[ResourcePattern, ...] = ()
    mig_resources: tuple[ResourcePattern, ...] = ()
    sharing: Sharing = field(default_factory=Sharing)


def read_file(content: str) -> FileContent:
    """Read the text of a file; an empty text sets nothing.

    Raises:
        PluginConfigError: With the stage ``parse``.
    """
    whole = read_yaml(content)
    top = fields_of(whole, "", _TOP)
    version = top.get("version") or VERSION
    if version != VERSION:
        line = next(item.line for key, item in mapping(whole, "").items() if key.lower() == "version")
        raise PluginConfigError(f"unknown version: {version}", line=line, advice=f"write 'version: {VERSION}'")
    resources = top.get("resources", {})
    return FileContent(
        flags={**dict(_dotted(top.get("flags", {}), "flags")), **dict(_dotted(top.get("imex", {}), "imex"))},
        gpu_resources=resources.get("gpus", ()),
        mig_resources=resources.get("mig", ()),
        sharing=top.get("sharing", Sharing()),
    )


def _dotted(data: Mapping[str, Any], where: str) -> list[tuple[str, Any]]:
    """Return the values of nested *data* by dotted keys."""
    found: list[tuple[str, Any]] = []
    for name, value in data.items():
        key = joined(where, name)
        found.extend(_dotted(value, key) if isinstance(value, dict) else [(key, value)])
    return found


def _struct(fields: Mapping[str, Decoder]) -> Decoder:
    return lambda value, where: fields_of(value, where, fields)


def _version(value: Value, where: str) -> str:
    """Decode the version, the only text that may also be a number or a boolean."""
    if isinstance(value.data, bool):
        return "true" if value.data else "false"
    if isinstance(value.data, int | float):
        return shortest(value.data)
    return text(value, where)


def _strategies(value: Value, where: str) -> tuple[str, ...]:
    """Decode one text or a list of texts."""
    if isinstance(value.data, str):
        return (value.data,)
    if isinstance(value.data, list) and all(item.data is None or isinstance(item.data, str) for item in value.data):
        return tuple(text(item, where) for item in value.data)
    raise PluginConfigError(
        f"invalid deviceListStrategy: {json_text(value)}",
        line=value.line,
        where=where,
        advice="write a strategy or a list of strategies",
    )


def _duration(value: Value, where: str) -> Duration:
    """Decode a text such as ``60s``, or a number of nanoseconds."""
    if isinstance(value.data, int | float) and not isinstance(value.data, bool):
        nanoseconds = int(value.data)
        return nanoseconds if nanoseconds in INT64 else INT64[0]  # as the CPU converts it for Go
    try:
        if isinstance(value.data, str):
            return parse_duration(value.data)
        message = "invalid duration"
    except ValueError as error:
        message = str(error)
    raise PluginConfigError(
        message, line=value.line, where=where, advice="write a number with a unit, such as 60s or 1h30m, or infinite"
    )


def _integers(value: Value, where: str) -> tuple[int, ...]:
    return tuple(integer(item, f"{where}[{at}]") for at, item in enumerate(items_of(value, where)))


def _patterns(value: Value, where: str) -> tuple[ResourcePattern, ...]:
    return tuple(fail_fast(_pattern)(item, f"{where}[{at}]") for at, item in enumerate(items_of(value, where)))


def _pattern(value: Value, where: str) -> ResourcePattern:
    """Decode one entry; its keys are case-sensitive."""
    keys = mapping(value, where)
    for name in ("pattern", "name"):
        if name not in keys:
            raise PluginConfigError(f"resources must have a '{name}' field set", line=value.line, where=where)
    pattern = text(keys["pattern"], joined(where, "pattern"))
    return ResourcePattern(pattern=pattern, name=named(resource_name, keys["name"], joined(where, "name")))


_PLUGIN: dict[str, Decoder] = {
    "passDeviceSpecs": flag,
    "deviceListStrategy": _strategies,
    "deviceIDStrategy": text,
    "cdiAnnotationPrefix": text,
    "nvidiaCTKPath": text,
    "containerDriverRoot": text,
    "sharedDevicesAllocationPolicy": text,
}
_GFD: dict[str, Decoder] = {
    "oneshot": flag,
    "noTimestamp": flag,
    "sleepInterval": _duration,
    "outputFile": text,
    "machineTypeFile": text,
}
_FLAGS: dict[str, Decoder] = {
    "migStrategy": text,
    "failOnInitError": flag,
    "mpsRoot": text,
    "nvidiaDriverRoot": text,
    "nvidiaDevRoot": text,
    "gdrcopyEnabled": flag,
    "gdsEnabled": flag,
    "mofedEnabled": flag,
    "useNodeFeatureAPI": flag,
    "deviceDiscoveryStrategy": text,
    "plugin": _struct(_PLUGIN),
    "gfd": _struct(_GFD),
}
_TOP: dict[str, Decoder] = {
    "version": _version,
    "flags": _struct(_FLAGS),
    "resources": _struct({"gpus": _patterns, "mig": _patterns}),
    "sharing": sharing,
    "imex": _struct({"channelIDs": _integers, "required": flag}),
}
