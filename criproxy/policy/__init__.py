"""Placement policies. A newcomer adds a file here and a line to `BUILTIN`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from criproxy.policy.api import Policy
from criproxy.policy.none import NonePolicy
from criproxy.policy.options import Options
from criproxy.policy.static import StaticPolicy
from criproxy.policy.topology_aware import TopologyAwareOptions, TopologyAwarePolicy


@dataclass(frozen=True, slots=True)
class Entry:
    """How to make a policy from its part of the policy file."""

    options: type[Options]
    build: Callable[[Any], Policy]
    """Takes an instance of `options`."""


BUILTIN: Mapping[str, Entry] = {
    "none": Entry(Options, NonePolicy),
    "static": Entry(Options, StaticPolicy),
    "topology-aware": Entry(TopologyAwareOptions, TopologyAwarePolicy),
}
"""Policies by the name that a policy file uses."""
