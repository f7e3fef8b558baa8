"""Keys that NVIDIA's plugin does not know: it ignores them silently, and a mistyped key has no effect."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from criproxy.nvidia.decode import joined
from criproxy.nvidia.yaml_like_go import Value, read_yaml


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A key that has no effect."""

    line: int
    key: str
    """The path of the key, for example ``resources.migs``."""
    close: str = ""
    """The known key with the most similar spelling; empty if there is none."""

    @property
    def sentence(self) -> str:
        """A sentence for users."""
        meant = f"; did you mean '{self.close}'?" if self.close else ""
        return f"line {self.line}: NVIDIA's plugin does not know '{self.key}' and ignores it{meant}"


@dataclass(frozen=True, slots=True)
class _Keys:
    """The known keys of a mapping, with the keys below them."""

    below: Mapping[str, "_Keys | None"]
    any_case: bool = True


def _names(names: str) -> dict[str, _Keys | None]:
    return dict.fromkeys(names.split())


_SHARED = _Keys(_names("name rename devices replicas"), any_case=False)
_PART = _Keys({**_names("renameByDefault failRequestsGreaterThanOne"), "resources": _SHARED}, any_case=False)
_PATTERN = _Keys(_names("pattern name"), any_case=False)
_PLUGIN = _Keys(
    _names(
        "passDeviceSpecs deviceListStrategy deviceIDStrategy cdiAnnotationPrefix nvidiaCTKPath containerDriverRoot "
        "sharedDevicesAllocationPolicy"
    )
)
_GFD = _Keys(_names("oneshot noTimestamp sleepInterval outputFile machineTypeFile"))
_SHARING = _Keys({"timeSlicing": _PART, "mps": _PART})
_FLAGS = _Keys(
    {
        **_names("migStrategy failOnInitError mpsRoot nvidiaDriverRoot nvidiaDevRoot gdrcopyEnabled gdsEnabled"),
        **_names("mofedEnabled useNodeFeatureAPI deviceDiscoveryStrategy"),
        "plugin": _PLUGIN,
        "gfd": _GFD,
    }
)
KNOWN = _Keys(
    {
        "version": None,
        "flags": _FLAGS,
        "resources": _Keys({"gpus": _PATTERN, "mig": _PATTERN}),
        "sharing": _SHARING,
        "imex": _Keys(_names("channelIDs required")),
    }
)
"""The keys of the whole file."""


def unknown_keys(text: str) -> list[UnknownKey]:
    """Return the keys in the *text* of a file that have no effect, in the order of the file.

    Raises:
        PluginConfigError: The text is not valid YAML.
    """
    return sorted(_unknown(read_yaml(text), "", KNOWN), key=lambda unknown: unknown.line)


def _unknown(value: Value, where: str, keys: _Keys) -> Iterator[UnknownKey]:
    if isinstance(value.data, list):
        for at, item in enumerate(value.data):
            yield from _unknown(item, f"{where}[{at}]", keys)
    if not isinstance(value.data, dict):
        return
    by_name = {name.lower() if keys.any_case else name: name for name in keys.below}
    for key, item in value.data.items():
        name = by_name.get(key.lower() if keys.any_case else key)
        if name is None:
            yield UnknownKey(item.line, joined(where, key), _close(key, where, keys))
            continue
        below = keys.below[name]
        if below is not None:
            yield from _unknown(item, joined(where, name), below)


def meant_at_the_top(key: str) -> str:
    """Return the known key that may be meant by *key* at the top of the file; empty if there is none."""
    return _close(key, "", KNOWN)


def _close(key: str, where: str, keys: _Keys) -> str:
    """Return the known key that may be meant: of the same mapping, or at the top of a section, as in Helm values."""
    for section, inner in (("flags", _FLAGS), ("flags.plugin", _PLUGIN), ("sharing", _SHARING)) if not where else ():
        if key in inner.below:
            return joined(section, key)
    close = get_close_matches(key, keys.below, n=1)
    return close[0] if close else ""
