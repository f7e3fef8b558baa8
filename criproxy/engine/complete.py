"""A policy with all that the engine adds to its answers; policies themselves know nothing of it.

From the inside out: what becomes of quotas, where containers run that are left alone, and what pods keep.
"""

from criproxy.engine.fallback import Fallback
from criproxy.engine.keeping import Keeping
from criproxy.engine.preserved import Preserving
from criproxy.policy.api import Policy


def complete(policy: Policy) -> Keeping:
    """The *policy* as every event asks it."""
    return Keeping(Preserving(policy), may_give=not isinstance(policy, Fallback))
