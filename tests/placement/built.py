"""Policies by name, as policy files would build them."""

from collections.abc import Mapping

from criproxy.placement.policies import BUILTIN
from criproxy.placement.policies.api import Policy


def policy_of(name: str, options: Mapping[str, object] | None = None) -> Policy:
    """The policy *name* with the options of a file."""
    entry = BUILTIN[name]
    return entry.build(entry.options.model_validate(options or {}))
