"""NVIDIA's configuration from the text of a file."""

from collections.abc import Mapping

from criproxy.deviceplugin.configuration.nvidia_file import read
from criproxy.deviceplugin.nvidia.options import PluginConfig
from criproxy.deviceplugin.nvidia.settings import overrides


def config_of(text: str, flags: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None) -> PluginConfig:
    """Return what *text*, *flags* and *env* say; raise ConfigError."""
    contents = read(text, [*overrides(flags or {}, env or {})])
    if contents.config is None:
        raise contents.error
    return contents.config
