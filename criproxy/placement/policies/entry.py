"""What a policy's module or package hands out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import Policy


@dataclass(frozen=True, slots=True)
class Entry:
    """How to make a policy from its part of the policy file."""

    options: type[Options]
    build: Callable[[Any], Policy]
    """Takes an instance of `options`."""
