"""Which containers have another CFS quota than the kubelet requested."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from criproxy.model.entries import changed_keys
from criproxy.model.grant import Applied, CpuQuota, Grant
from criproxy.model.node import Node


@dataclass(slots=True)
class LiftedQuotas:
    """Tracks lifted quotas from node to node; the cost depends only on the changes."""

    _keys: set[str] = field(default_factory=set)
    _grants: Mapping[str, Grant] = field(default_factory=dict)
    _applied: Mapping[str, Applied] = field(default_factory=dict)

    def any(self, node: Node) -> bool:
        """Whether the quota of any container is lifted, is to be lifted, or is not known to be restored."""
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
