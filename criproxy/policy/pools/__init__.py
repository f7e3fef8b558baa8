"""The policy ``pools``: parts of the machine that are fixed in the policy file, and whole pods in one of them.

It is CRI-RM's podpools and static-pools in one; `plan` gives each pool its CPUs, `policy` puts containers into pools.
"""

from criproxy.policy.entry import Entry
from criproxy.policy.pools.options import PoolsOptions as PoolsOptions
from criproxy.policy.pools.policy import PoolsPolicy as PoolsPolicy

ENTRY = Entry(PoolsOptions, PoolsPolicy)
"""What a policy's module or package hands out."""
