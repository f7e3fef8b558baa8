"""Keys that NVIDIA's plugin does not know: it ignores them silently, and a mistyped key has no effect."""

from collections.abc import Iterator
from dataclasses import dataclass

from criproxy.deviceplugin.nvidia.file.decode import joined
from criproxy.deviceplugin.nvidia.go.yaml_like_go import Value, read_yaml
from criproxy.devices.options.nvidia_keys import KNOWN, Keys, close_key


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


def unknown_keys(text: str) -> list[UnknownKey]:
    """Return the keys in the *text* of a file that have no effect, in the order of the file.

    Raises:
        PluginConfigError: The text is not valid YAML.
    """
    return sorted(_unknown(read_yaml(text), "", KNOWN), key=lambda unknown: unknown.line)


def _unknown(value: Value, where: str, keys: Keys) -> Iterator[UnknownKey]:
    if isinstance(value.data, list):
        for at, item in enumerate(value.data):
            yield from _unknown(item, f"{where}[{at}]", keys)
    if not isinstance(value.data, dict):
        return
    by_name = {name.lower() if keys.any_case else name: name for name in keys.below}
    for key, item in value.data.items():
        name = by_name.get(key.lower() if keys.any_case else key)
        if name is None:
            yield UnknownKey(item.line, joined(where, key), close_key(key, where, keys))
            continue
        below = keys.below[name]
        if below is not None:
            yield from _unknown(item, joined(where, name), below)
