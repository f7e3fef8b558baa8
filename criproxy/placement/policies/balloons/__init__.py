"""The policy ``balloons``: groups of CPUs that grow and shrink with what their containers ask for.

Its rules and the names of its options are those of the policies of the same name in CRI-RM and nri-plugins. Balloon
types are compiled for a machine (`kinds`), balloons are read from grants (`state`), chosen for each container
(`balloon_choice`) and sized (`balloon_cpus`); `policy` puts that together.
"""

from criproxy.placement.policies.api import Entry
from criproxy.placement.policies.balloons.options import BalloonsOptions as BalloonsOptions
from criproxy.placement.policies.balloons.policy import BalloonsPolicy as BalloonsPolicy

ENTRY = Entry(BalloonsOptions, BalloonsPolicy)
