"""The section ``sharing`` of NVIDIA's file: how many times the cards of each resource are offered.

Keys below ``timeSlicing`` and ``mps`` are case-sensitive.
"""

from criproxy.deviceplugin.nvidia.file.decode import (
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
from criproxy.deviceplugin.nvidia.file.names import is_card_reference, resource_name, shared_name
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError
from criproxy.deviceplugin.nvidia.go.numbers import INT64, UINT64, whole
from criproxy.deviceplugin.nvidia.go.yaml_like_go import Value
from criproxy.deviceplugin.nvidia.options import DevicesSelector, SharedResource, SharedResources, Sharing

MIN_REPLICAS = 2


def sharing(value: Value, where: str) -> Sharing:
    """Decode both subsections; the one that does not take effect is checked, too."""
    found = fields_of(
        value, where, {"timeSlicing": fail_fast(_time_slicing), "mps": fail_fast(_mps)}, even_null=("timeSlicing",)
    )
    return Sharing(time_slicing=found.get("timeSlicing"), mps=found.get("mps"))


def _time_slicing(value: Value, where: str) -> SharedResources:
    return _section(value, where, fails_by_default=False)


def _mps(value: Value, where: str) -> SharedResources:
    return _section(value, where, fails_by_default=True)


def _section(value: Value, where: str, *, fails_by_default: bool) -> SharedResources:
    keys = mapping(value, where)
    renames = flag(keys.get("renameByDefault", _NULL), joined(where, "renameByDefault"))
    fails = keys.get("failRequestsGreaterThanOne", _NULL)
    configured = flag(fails, joined(where, "failRequestsGreaterThanOne"))
    listed = keys.get("resources", _NULL)
    below = joined(where, "resources")
    resources = tuple(_resource(item, f"{below}[{at}]", renames) for at, item in enumerate(items_of(listed, below)))
    if not resources:
        raise PluginConfigError(
            "no resources specified",
            line=listed.line or value.line,
            where=where,
            advice="list them under 'resources', each with a name and replicas",
        )
    return SharedResources(
        rename_by_default=renames,
        fail_requests_greater_than_one=fails_by_default if fails.data is None else configured,
        resources=resources,
    )


_NULL = Value(None, 0)
"""Stands for a missing key."""


def _resource(value: Value, where: str, renames: bool) -> SharedResource:
    """Decode one entry; checks its keys in the same order as NVIDIA's plugin."""
    keys = mapping(value, where)
    if "name" not in keys:
        raise PluginConfigError(
            "no resource name specified", line=value.line, where=where, advice="add a name such as nvidia.com/gpu"
        )
    name = named(resource_name, keys["name"], joined(where, "name"))
    devices = _devices(keys["devices"], joined(where, "devices")) if "devices" in keys else "all"
    if "replicas" not in keys:
        raise PluginConfigError(
            "no replicas specified",
            line=value.line,
            where=where,
            advice="add 'replicas': how many times each card is offered",
        )
    replicas = _replicas(keys["replicas"], joined(where, "replicas"))
    rename = shared_name(name) if renames else ""
    if "rename" in keys:
        rename = named(resource_name, keys["rename"], joined(where, "rename"))
    return SharedResource(name=name, rename=rename, devices=devices, replicas=replicas)


def _replicas(value: Value, where: str) -> int:
    replicas = integer(value, where)
    if replicas < MIN_REPLICAS:
        raise PluginConfigError(
            f"number of replicas must be >= {MIN_REPLICAS}",
            line=value.line,
            where=where,
            advice=f"it is {replicas}; leave the resource out if its cards are not to be shared",
        )
    return replicas


def _devices(value: Value, where: str) -> DevicesSelector:
    """Decode a selection: all cards, the first so many, or those listed."""
    if value.data is None or isinstance(value.data, str):
        string = text(value, where)
        if string != "all":
            raise _invalid_devices(f"devices set as '{string}' but the only valid string input is 'all'", value, where)
        return "all"
    count = whole(value.data)
    if count is not None and count in INT64:
        if count <= 0:
            raise _invalid_devices(f"devices set as '{count}' but a count of devices must be > 0", value, where)
        return count
    if not isinstance(value.data, list):
        raise _invalid_devices(f"unrecognized type for devices spec: {json_text(value)}", value, where)
    return tuple(_device(item, f"{where}[{at}]") for at, item in enumerate(value.data))


def _device(value: Value, where: str) -> str:
    """Decode a listed card; null counts as 0, as in Go."""
    index = 0 if value.data is None else whole(value.data)
    if index is not None and index in UINT64:
        return str(index)
    string = value.data if isinstance(value.data, str) else ""
    if not is_card_reference(string):
        raise _invalid_devices(f"unsupported type for device in devices list: {string}, string", value, where)
    return string


def _invalid_devices(message: str, value: Value, where: str) -> PluginConfigError:
    return PluginConfigError(
        message,
        line=value.line,
        where=where,
        advice="write all, a count, or a list of indexes (1), MIG indexes (1:0) and UUIDs (GPU-…, MIG-…)",
    )
