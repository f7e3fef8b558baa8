"""CRI-RM and nri-plugins: how their configurations are recognised, and what is said about them."""

from collections.abc import Mapping
from typing import Any

_CRIRM = "docs/migrate-from-crirm.md"
_NRI = "docs/migrate-from-nri-plugins.md"
_KINDS = ("TopologyAwarePolicy", "BalloonsPolicy", "TemplatePolicy")
"""The kinds of nri-plugins' objects."""
_POLICIES = {
    "dynamic-pools": "balloons",
    "memtier": "topology-aware",
    "podpools": "pools",
    "static-plus": "static",
    "static-pools": "pools",
}
"""Policy of CRI-RM → the one that does its work here."""
_OPTIONS = {
    "agent": ("nri-plugins", _NRI),
    "blockio": ("CRI-RM", _CRIRM),
    "control": ("nri-plugins", _NRI),
    "dump": ("CRI-RM", _CRIRM),
    "instrumentation": ("CRI-RM and nri-plugins", f"{_CRIRM} and {_NRI}"),
    "log": ("nri-plugins", _NRI),
    "logger": ("CRI-RM", _CRIRM),
    "rdt": ("CRI-RM", _CRIRM),
    "resource-manager": ("CRI-RM", _CRIRM),
}
"""Option beside those of the policy, which policy files do not have → the programs that have it, and the page."""


def recognised(data: Mapping[str, Any]) -> str:
    """Return a sentence about a whole configuration of another program; empty if it is none."""
    kind, metadata = data.get("kind"), data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if kind in _KINDS or str(data.get("apiVersion")).startswith("config.nri/"):
        return _sentence("nri-plugins", _NRI)
    if isinstance(data.get("policy"), Mapping) or (kind == "ConfigMap" and str(name).startswith("cri-resmgr-config")):
        return _sentence("CRI-RM", _CRIRM)
    return ""


def _sentence(program: str, page: str) -> str:
    return f"this is a configuration of {program}: {page} explains how to translate it"


def instead_of_policy(name: str) -> str:
    """Return ``; …`` about the policy that replaces one of CRI-RM; empty if *name* is none of its policies."""
    if name not in _POLICIES:
        return ""
    return f"; {_POLICIES[name]!r} replaces CRI-RM's {name!r}: {_CRIRM} explains how to translate its options"


def about_option(name: str) -> str:
    """Return ``; …`` about an option of another program that policy files do not have; empty if it is none."""
    if name not in _OPTIONS:
        return ""
    programs, page = _OPTIONS[name]
    return f"; it is one of {programs}, see {page}"
