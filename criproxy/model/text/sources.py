"""Configurations that come from files and NodePolicies: their source, their hash, and how long one may be tried."""

import re
from hashlib import sha256

HASH_DIGITS = 12
"""Enough to tell the files of a cluster apart; ``sha256sum`` prints the same digits first."""
SHORTEST_TRY_S, LONGEST_TRY_S = 1, 168 * 3600
NODE_POLICY = "NodePolicy/"
"""Before the name of a NodePolicy, in place of the path of a policy file."""
_NODE_POLICY = re.compile(rf"{NODE_POLICY}([a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?)")


def node_policy_of(source: str) -> str:
    """Return the name of the NodePolicy whose content a configuration has; empty if that is a file.

    Args:
        source: a path, or ``NodePolicy/NAME``.
    """
    found = _NODE_POLICY.fullmatch(source)
    return found[1] if found else ""


def hash_of(text: str) -> str:
    """Return the first `HASH_DIGITS` digits of the SHA-256 of *text*."""
    return sha256(text.encode(errors="replace")).hexdigest()[:HASH_DIGITS]
