"""Wraps a policy with what the engine adds to its answers; policies need not handle it.

From the inside out: CFS quotas, preserved containers, and kept CPUs of pods.
"""

from criproxy.engine.fallback import Fallback
from criproxy.engine.keeping import Keeping
from criproxy.engine.preserved import Preserving
from criproxy.policy.api import Policy


def complete(policy: Policy) -> Keeping:
    """Return the wrapped *policy*, which the engine uses for every event."""
    return Keeping(Preserving(policy), may_give=not isinstance(policy, Fallback))
