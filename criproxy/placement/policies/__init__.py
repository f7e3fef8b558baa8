"""Placement policies. A new one is a file here that ends in `ENTRY`, a case in `_imported`, and a name in `BUILTIN`.

Only the requested policy is imported: a daemon needs just one, and has to start fast.
"""

from collections import UserDict
from typing import Any

from criproxy.placement.policies.api import Entry

__all__ = ["BUILTIN", "Entry"]


def _imported(name: str) -> Entry:
    match name:
        case "none":
            from criproxy.placement.policies.none import ENTRY
        case "static":
            from criproxy.placement.policies.static import ENTRY
        case "pools":
            from criproxy.placement.policies.pools import ENTRY
        case "balloons":
            from criproxy.placement.policies.balloons import ENTRY
        case "topology-aware":
            from criproxy.placement.policies.topology_aware import ENTRY
        case _:
            raise KeyError(name)
    return ENTRY


class _Policies(UserDict[str, Entry]):
    """Policies by the name that a policy file uses; those of this package are imported when they are first used."""

    def __getitem__(self, name: str) -> Entry:
        entry = super().__getitem__(name)
        return _imported(name) if entry is _LATE else entry


_LATE: Any = None
BUILTIN = _Policies(dict.fromkeys(("none", "static", "pools", "balloons", "topology-aware"), _LATE))
"""The policies of this package."""
