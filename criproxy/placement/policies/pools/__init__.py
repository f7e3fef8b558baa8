"""The policy ``pools``: parts of the machine that are fixed in the policy file, and whole pods in one of them.

It is CRI-RM's podpools and static-pools in one; `plan` gives each pool its CPUs, `policy` puts containers into pools.
"""

from criproxy.placement.policies.api import Entry
from criproxy.placement.policies.pools.options import PoolsOptions as PoolsOptions
from criproxy.placement.policies.pools.policy import PoolsPolicy as PoolsPolicy

ENTRY = Entry(PoolsOptions, PoolsPolicy)
"""What a policy's module or package hands out."""
