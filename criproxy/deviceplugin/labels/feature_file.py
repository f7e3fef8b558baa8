"""The content of a feature file, from which node-feature-discovery labels the node.

If the API server refuses one label, the node can lose all others; therefore, no such label is written.
"""

import re
from collections.abc import Mapping
from typing import Final

FILE_MODE: Final = 0o644
"""The worker of node-feature-discovery may not run as root."""
MAX_LABEL = 63
"""The maximum length of a value, and of a key without its prefix."""
_MAX_PREFIX = 253
_ILLEGAL = re.compile("[^A-Za-z0-9_.-]")
_NAME = re.compile("[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_NOT_AT_ENDS = "-_."


def legal_value(text: str) -> str:
    """Return *text* as a valid value of a label: shortened, and without characters that are not allowed there."""
    return _ILLEGAL.sub("", text).lstrip(_NOT_AT_ENDS)[:MAX_LABEL].rstrip(_NOT_AT_ENDS)


def is_legal_key(key: str) -> bool:
    """Whether *key* is a valid key of a label, with a prefix."""
    prefix, slash, name = key.partition("/")
    return (
        bool(slash)
        and len(prefix) <= _MAX_PREFIX
        and len(name) <= MAX_LABEL
        and _PREFIX.fullmatch(prefix) is not None
        and _NAME.fullmatch(name) is not None
    )


def feature_file(labels: Mapping[str, str]) -> str:
    """Return a line ``key=value`` for each label, sorted by key; leaves out labels with an invalid key."""
    return "".join(f"{key}={legal_value(labels[key])}\n" for key in sorted(filter(is_legal_key, labels)))
