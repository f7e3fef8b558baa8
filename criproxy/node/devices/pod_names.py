"""Names that several pods have had since criproxy started: an answer by name may be about any of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from criproxy.model.workload import Pod

MAX_NAMES = 20_000
"""Names that are remembered: the most recent ones."""


@dataclass(slots=True)
class PodNames:
    """The names and UIDs of pods since criproxy started.

    Args:
        pods: returns the pods on the node, including those from before the start.
    """

    pods: Callable[[], Iterable[Pod]] = tuple
    _uids: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """UIDs by namespace and name; two are enough to know that the name was reused."""

    def update(self) -> None:
        """Add the pods on the node."""
        for pod in self.pods():
            self.add(pod.namespace, pod.name, pod.uid)

    def add(self, namespace: str, name: str, uid: str) -> None:
        """Add one pod."""
        uids = self._uids.pop((namespace, name), set())
        self._uids[namespace, name] = uids
        if len(uids) < 2:
            uids.add(uid)
        if len(self._uids) > MAX_NAMES:
            del self._uids[next(iter(self._uids))]

    def is_reused(self, namespace: str, name: str, uid: str) -> bool:
        """Whether another pod than *uid* has, or had, this name."""
        self.update()
        return bool(self._uids.get((namespace, name), set()) - {uid})
