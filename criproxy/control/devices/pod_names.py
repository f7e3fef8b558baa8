"""Which names of pods stood for several pods, as far as criproxy has seen: an answer by name may mean any of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from criproxy.model.workload import Pod

MAX_NAMES = 20_000
"""So many are remembered: those seen last."""


@dataclass(slots=True)
class PodNames:
    """Remembers names and UIDs of pods since criproxy started.

    Args:
        pods: those on the node, also from before.
    """

    pods: Callable[[], Iterable[Pod]] = tuple
    _uids: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """At most two by namespace and name: one that is not the first is enough."""

    def look(self) -> None:
        """Remember the pods on the node."""
        for pod in self.pods():
            self.see(pod.namespace, pod.name, pod.uid)

    def see(self, namespace: str, name: str, uid: str) -> None:
        """Remember one pod."""
        uids = self._uids.pop((namespace, name), set())
        self._uids[namespace, name] = uids
        if len(uids) < 2:
            uids.add(uid)
        if len(self._uids) > MAX_NAMES:
            del self._uids[next(iter(self._uids))]

    def is_reused(self, namespace: str, name: str, uid: str) -> bool:
        """Whether another pod than *uid* has, or had, this name."""
        self.look()
        return bool(self._uids.get((namespace, name), set()) - {uid})
