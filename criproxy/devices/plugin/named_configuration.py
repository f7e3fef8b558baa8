"""The configuration of NVIDIA's device plugin that was chosen by name in the cluster, as a file on the node.

The daemon writes the file into its state directory, and the device plugin follows it: so both go on with it while the
cluster, or one of them, is away. docs/device-plugin.md says how it is chosen.
"""

import json
from dataclasses import dataclass

from criproxy.errors import ConfigError
from criproxy.model.text.plain import from_plain, to_plain
from criproxy.model.text.sources import hash_of

FILE_NAME = "device-configuration.json"
MAX_TEXT_CHARS = 1 << 18
MAX_FILE_BYTES = 1 << 21
"""JSON takes up to six bytes for a character."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedConfiguration:
    """A file of NVIDIA's device plugin (``version: v1``), and how it came to this node."""

    name: str
    text: str
    source: str = ""
    """Where it is from, such as ``ConfigMap criproxy/device-plugin``."""
    node_uid: str = ""
    """The UID of the Node object for which it was chosen."""

    @property
    def title(self) -> str:
        """For people, and in place of the path of a file."""
        return f"configuration {self.name} of {self.source}" if self.source else f"configuration {self.name}"

    @property
    def hash(self) -> str:
        """The first 12 digits of the SHA-256 of the text."""
        return hash_of(self.text)

    def to_json(self) -> str:
        """Return the content of the file."""
        return json.dumps(to_plain(self))


def from_json(content: bytes) -> NamedConfiguration:
    """Return what the *content* of the file says.

    Raises:
        ConfigError: it is not such a file.
    """
    try:
        return from_plain(NamedConfiguration, json.loads(content))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"criproxy has not written this file ({error}): remove it") from None
