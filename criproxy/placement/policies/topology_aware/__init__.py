"""The policy ``topology-aware``: every container in the smallest part of the machine that has room for it.

Its rules and the names of its options are those of nri-plugins' policy of the same name.
"""

from criproxy.placement.policies.api import Entry
from criproxy.placement.policies.topology_aware.options import TopologyAwareOptions as TopologyAwareOptions
from criproxy.placement.policies.topology_aware.policy import TopologyAwarePolicy as TopologyAwarePolicy

ENTRY = Entry(TopologyAwareOptions, TopologyAwarePolicy)
