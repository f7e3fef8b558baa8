"""What NVIDIA's own programs do otherwise than criproxy, so that their cases can be judged.

NVIDIA's plugin drops what it does not support yet, and criproxy does what the file says.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from criproxy.deviceplugin.nvidia.file.names import shared_name
from criproxy.deviceplugin.nvidia.file.selection import DEFAULT, Choice, _choose_existing, _error
from criproxy.deviceplugin.nvidia.go.durations import _UNITS_NS, INFINITE, Duration
from criproxy.deviceplugin.nvidia.options import PluginConfig, SharedResources, Sharing
from criproxy.deviceplugin.nvidia.xids import Place

_SECOND_NS = _UNITS_NS["s"]
_OLD_MIG_UUID = re.compile(r"MIG-(GPU-[^/]+)/([0-9]{1,9})/([0-9]{1,9})")
"""The UUID of drivers before R470, which contains the GPU and both instances."""


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


def choose_as_config_manager(
    names: Collection[str], label: str, default: str, fallbacks: Sequence[str] = ("named", "single", "empty")
) -> Choice:
    """Choose a file as NVIDIA does: the node's *label*, or the *default* of its flag, or the first fallback that works.

    *names* are those of `config_names`; *label* and *default* are empty if they are not set.

    Raises:
        PluginConfigError: With the class ``file`` and NVIDIA's message.
    """
    if not names:
        raise _error("no configuration files available")
    if label:
        return _choose_existing(label, names, "the node's label names it")
    if default:
        if default not in names:
            raise _error("specified config  does not exist", f"this is {default}, the default")
        return Choice(default, "it is the given default")
    for fallback in fallbacks:
        choice = _fallback(fallback, names)
        if choice is not None:
            return choice
    raise _error("no config was set, no default was provided, and all fallbacks failed")


def _fallback(fallback: str, names: Collection[str]) -> Choice | None:
    match fallback:
        case "named":
            return Choice(DEFAULT, f"it is named {DEFAULT}") if DEFAULT in names else None
        case "single":
            return Choice(next(iter(names)), "it is the only one") if len(names) == 1 else None
        case "empty":
            return Choice("", "no earlier fallback found one")
    raise _error(f"unknown fallback strategy: {fallback}", "it can be named, single or empty")


def duration_text(duration: Duration) -> str:
    """Format a duration as Go does: ``1m0s``, ``250ms``, ``5ns``, ``0s``."""
    if duration == INFINITE:
        return INFINITE
    sign, rest_ns = ("-", -duration) if duration < 0 else ("", duration)
    if rest_ns == 0:
        return "0s"
    if rest_ns < _SECOND_NS:
        unit = next(unit for unit in ("ms", "\u00b5s", "ns") if rest_ns >= _UNITS_NS[unit])
        return f"{sign}{_decimal(rest_ns, _UNITS_NS[unit])}{unit}"
    minutes, seconds_ns = divmod(rest_ns, _UNITS_NS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(seconds_ns, _SECOND_NS)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


def _decimal(amount_ns: int, unit_ns: int) -> str:
    """Return *amount_ns* in units of *unit_ns*, a power of ten, without trailing zeros."""
    integer, rest = divmod(amount_ns, unit_ns)
    digits = f"{rest:0{len(str(unit_ns)) - 1}}".rstrip("0") if rest else ""
    return f"{integer}.{digits}" if digits else str(integer)


def place_in(uuid: str) -> Place | None:
    """Return the place in the UUID of a MIG device itself, for drivers that cannot be queried; None if it has none."""
    found = _OLD_MIG_UUID.fullmatch(uuid)
    return Place(found[1], int(found[2]), int(found[3])) if found else None
