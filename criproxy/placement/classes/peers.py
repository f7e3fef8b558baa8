"""Definitions of classes of CRI-RM, nri-plugins and goresctrl → those of policy files, as plain data.

Both the options of nri-plugins in policy files and `criproxy convert` are read here. Their numbers that are 0, and
texts that are empty, mean that nothing is set, as in Go.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

CPU = {
    **{name: name for name in ("minFreq", "maxFreq", "energyPerformancePreference", "uncoreMinFreq", "uncoreMaxFreq")},
    "freqGovernor": "governor",
    "disabledCstates": "disabledCStates",
}
"""Option of a CPU class → ours."""
_TIMES = ("runtime", "deadline", "period")
SCHEDULING = {name: name for name in ("policy", "priority", "nice", *_TIMES, "flags", "ioClass", "ioPriority")}
"""Option of a scheduling class → ours."""
BLOCK_IO = {
    "Weight": "weight",
    "ThrottleReadBps": "readBps",
    "ThrottleWriteBps": "writeBps",
    "ThrottleReadIOPS": "readIOPS",
    "ThrottleWriteIOPS": "writeIOPS",
}
"""Parameter of a block I/O class → ours."""
_FLAGS = ("reset-on-fork", "reclaim", "dl-overrun")
_SHARES = {name: (f"{name}Allocation", f"{name}Schema") for name in ("l2", "l3", "mb")}
"""Resource → the options of goresctrl with shares of it."""
_ROOT = {"SYSTEM_DEFAULT": "system/default"}
"""What older versions of goresctrl call the root group → what newer ones and criproxy call it."""
_ZERO_COUNTS = ("nice", "ioPriority")
"""Options for which 0 is a value."""
_TURBO = "turboPriority and Intel SST are not supported"
_WHY = dict.fromkeys(("turboPriority", "pctPriority", "pctMinFreq", "pctMaxFreq", "sstClosID"), _TURBO)

Path = tuple[str | int, ...]


class Translated(NamedTuple):
    """One class of a peer."""

    name: str
    path: Path
    """Below the peer's option."""
    data: dict[str, Any]
    """The part of a class, with our names."""
    lost: tuple[tuple[Path, str], ...] = ()
    """What has no equivalent, and why."""


def _named(classes: object) -> Iterator[tuple[str, Path, Mapping[str, Any]]]:
    """Yield the classes in a map by name, or in a list with names."""
    entries: Iterator[tuple[object, str | int, object]]
    if isinstance(classes, Mapping):
        entries = ((name, str(name), each) for name, each in classes.items())
    else:
        listed = classes if isinstance(classes, Sequence) and not isinstance(classes, str) else ()
        entries = ((value_of(each, "name"), index, each) for index, each in enumerate(listed))
    for name, place, each in entries:
        yield str(name or ""), (place,), each if isinstance(each, Mapping) else {}


def value_of(data: object, key: str) -> Any:  # noqa: ANN401 (YAML)
    """Return what *data* has at *key*, whatever its case."""
    found = data if isinstance(data, Mapping) else {}
    return next((value for name, value in found.items() if str(name).lower() == key.lower()), None)


def _translated(
    each: Mapping[str, Any], names: Mapping[str, str], path: Path, skip: Sequence[str] = ("name",)
) -> tuple[dict[str, Any], list[tuple[Path, str]]]:
    data, lost = dict[str, Any](), list[tuple[Path, str]]()
    known = {name.lower(): (name, ours) for name, ours in names.items()}
    for key, value in each.items():
        name, ours = known.get(str(key).lower(), ("", ""))
        if not name:
            if str(key).lower() not in skip and value not in (0, "", None, False, [], ()):
                lost.append(((*path, str(key)), _WHY.get(str(key), "criproxy has no such setting")))
        elif (value or value == 0) and (value != 0 or ours in _ZERO_COUNTS or isinstance(value, str)):
            data[ours] = value
    return data, lost


def cpu_classes(classes: object) -> Iterator[Translated]:
    """Yield CPU classes: ``cpuClasses`` of nri-plugins, ``cpu.classes`` of CRI-RM."""
    for name, path, each in _named(classes):
        data, lost = _translated(each, CPU, path)
        yield Translated(name, path, data, tuple(lost))


def scheduling_classes(classes: object) -> Iterator[Translated]:
    """Yield the ``schedulingClasses`` of nri-plugins; their times are microseconds."""
    for name, path, each in _named(classes):
        data, lost = _translated(each, SCHEDULING, path)
        data |= {key: f"{data[key]}us" for key in _TIMES if type(data.get(key)) is int}
        if str(data.get("policy")) == "none":
            del data["policy"]
        elif str(data.get("policy")) == "iso":
            lost.append(((*path, "policy"), "Linux has no policy iso"))
            del data["policy"]
        if data.get("policy") not in ("other", "batch") and not data.get("nice"):
            data.pop("nice", None)
        if data.get("ioClass") not in ("rt", "be"):
            data.pop("ioPriority", None)
        flags = data.pop("flags", None) or ()
        if kept := [flag for flag in flags if flag in _FLAGS]:
            data["flags"] = kept
        for flag in flags:
            if flag not in _FLAGS:
                lost.append(((*path, "flags"), f"the flag {str(flag)[:40]} is not supported"))
        yield Translated(name, path, data, tuple(lost))


def block_io_classes(classes: object) -> Iterator[Translated]:
    """Yield the ``Classes`` of CRI-RM's ``blockio``: each is a list of parameters, with or without devices."""
    entries = classes if isinstance(classes, Mapping) else {}
    for name, listed in entries.items():
        path: Path = (str(name),)
        data, devices, lost = dict[str, Any](), list[dict[str, Any]](), list[tuple[Path, str]]()
        for index, each in enumerate(listed if isinstance(listed, list | tuple) else ()):
            found, more = _translated(each if isinstance(each, Mapping) else {}, BLOCK_IO, (*path, index), ("devices",))
            lost += more
            if paths := value_of(each, "devices"):
                devices.append({"paths": [*paths] if isinstance(paths, list | tuple) else [paths], **found})
            else:
                if len(found) > ("weight" in found):
                    lost.append(((*path, index), "limits need devices"))
                data |= {key: value for key, value in found.items() if key == "weight"}
        yield Translated(str(name), path, data | ({"devices": devices} if devices else {}), tuple(lost))


def rdt_section(config: object) -> tuple[dict[str, Any], list[Translated]]:
    """Return our section ``rdt``, and the classes, of a configuration of goresctrl: ``options`` and ``partitions``."""
    partitions, classes = dict[str, Any](), list[Translated]()
    found = value_of(config, "partitions")
    for name, partition in found.items() if isinstance(found, Mapping) else ():
        if shares := _rdt_shares(partition):
            partitions[str(name)] = shares
        nested = value_of(partition, "classes")
        for each, settings in nested.items() if isinstance(nested, Mapping) else ():
            path: Path = ("partitions", str(name), "classes", str(each))
            data = _rdt_shares(settings) | ({"partition": str(name)} if shares else {})
            classes.append(Translated(_ROOT.get(str(each), str(each)), path, data, (*_lost_of_rdt(settings, path),)))
    options = value_of(config, "options")
    optional = [name for name in ("l2", "l3", "mb") if value_of(value_of(options, name), "optional") is True]
    section = ({"partitions": partitions} if partitions else {}) | ({"optional": optional} if optional else {})
    return section, classes


def _rdt_shares(settings: object) -> dict[str, Any]:
    found = {name: [value_of(settings, key) for key in keys] for name, keys in _SHARES.items()}
    return {name: next(filter(None, shares)) for name, shares in found.items() if any(shares)}


def _lost_of_rdt(settings: object, path: Path) -> Iterator[tuple[Path, str]]:
    known = {key.lower() for keys in _SHARES.values() for key in keys}
    for key, value in settings.items() if isinstance(settings, Mapping) else ():
        if value and str(key).lower() not in known:
            denies = str(key).lower() == "kubernetes"
            why = "say with annotations.allow who may name classes" if denies else "criproxy has no such setting"
            yield (*path, str(key)), why
