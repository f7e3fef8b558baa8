"""Whose CFS quota is not as the kubelet asked for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from criproxy.model.entries import changed_keys
from criproxy.model.grant import Applied, CpuQuota, Grant
from criproxy.model.node import Node


@dataclass(slots=True)
class LiftedQuotas:
    """Follows a node from event to event, at the cost of what changed."""

    _keys: set[str] = field(default_factory=set)
    _grants: Mapping[str, Grant] = field(default_factory=dict)
    _applied: Mapping[str, Applied] = field(default_factory=dict)

    def any(self, node: Node) -> bool:
        """Whether there is a container whose quota is lifted, or shall be, or was and is not known to be restored."""
        for key in {*changed_keys(self._grants, node.grants), *changed_keys(self._applied, node.applied)}:
            if _differs(node.grants.get(key), node.applied.get(key)):
                self._keys.add(key)
            else:
                self._keys.discard(key)
        self._grants, self._applied = node.grants, node.applied
        return bool(self._keys)


def _differs(grant: Grant | None, applied: Applied | None) -> bool:
    if grant is None or grant.quota is CpuQuota.LEFT:
        return False
    return grant.quota is CpuQuota.LIFTED or applied is None or applied.lifted
