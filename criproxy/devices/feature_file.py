"""The text of a feature file, from which node-feature-discovery labels the node.

A label that the API server refuses can cost the node all others, and so none is written that it would refuse.
"""

import re
from collections.abc import Mapping
from typing import Final

FILE_MODE: Final = 0o644
"""The worker of node-feature-discovery need not be root."""
MAX_LABEL = 63
"""Of a value, and of a key behind its prefix."""
_MAX_PREFIX = 253
_ILLEGAL = re.compile("[^A-Za-z0-9_.-]")
_NAME = re.compile("[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_NOT_AT_ENDS = "-_."


def legal_value(text: str) -> str:
    """*text* as a label can hold it: shortened, and without what is not allowed, there or at its ends."""
    return _ILLEGAL.sub("", text).lstrip(_NOT_AT_ENDS)[:MAX_LABEL].rstrip(_NOT_AT_ENDS)


def is_legal_key(key: str) -> bool:
    """Whether *key* is a label's, with a prefix."""
    prefix, slash, name = key.partition("/")
    return (
        bool(slash)
        and len(prefix) <= _MAX_PREFIX
        and len(name) <= MAX_LABEL
        and _PREFIX.fullmatch(prefix) is not None
        and _NAME.fullmatch(name) is not None
    )


def feature_file(labels: Mapping[str, str]) -> str:
    """One line for each label, ``key=value``, in the order of the keys; those without a legal key are left out."""
    return "".join(f"{key}={legal_value(labels[key])}\n" for key in sorted(filter(is_legal_key, labels)))
