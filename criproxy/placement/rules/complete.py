"""Wraps a policy with what the engine adds to its answers; policies need not handle it.

From the inside out: CFS quotas, preserved containers, and kept CPUs of pods.
"""

from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.fallback import Fallback
from criproxy.placement.rules.keeping import Keeping
from criproxy.placement.rules.preserved import Preserving


def complete(policy: Policy) -> Keeping:
    """Return the wrapped *policy*, which the engine uses for every event."""
    return Keeping(Preserving(policy), may_give=not isinstance(policy, Fallback))
