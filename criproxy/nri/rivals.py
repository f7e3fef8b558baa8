"""Signs that somebody else decides about containers, too: another plugin, or another criproxy."""

from collections import Counter
from dataclasses import dataclass, field

from criproxy.cri.stamp import ANNOTATION
from criproxy.nri import api_pb2 as nri

MANY_FAILED = 2
"""So many creates of a container in a row: one fails for other reasons, too, such as a kubelet that gives it up."""
_Name = tuple[str, str, str]
"""Namespace and name of a pod, and the name of a container."""


@dataclass(slots=True)
class Rivals:
    """What the creates of a runtime show. Nothing tells why one has failed: the kubelet may have given it up."""

    stamped: str = ""
    """The container of the last create, if another criproxy between the kubelet and the runtime had placed it."""
    _failed: Counter[_Name] = field(default_factory=Counter)
    """How often the create of each container has failed after criproxy had answered, since one has succeeded."""

    @property
    def failed(self) -> tuple[int, str]:
        """How many creates of one container have failed in a row, and of which; of several, the last one with many."""
        last = (each for each in reversed(self._failed.items()) if each[1] >= MANY_FAILED)
        name, count = next(last, ((), 0))
        return count, "/".join(name)

    def asked(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        """Note a create. Runtimes copy annotations of pods, which tenants write, to containers."""
        ours = container.annotations.get(ANNOTATION, "")
        is_stamped = ours and ours != pod.annotations.get(ANNOTATION)
        self.stamped = "/".join(_name(pod, container)) if is_stamped else ""

    def ended(self, pod: nri.PodSandbox, container: nri.Container, *, failed: bool) -> None:
        """Note how a create that criproxy has answered has ended."""
        count = self._failed.pop(name := _name(pod, container), 0)
        if failed:
            self._failed[name] = count + 1

    def forget(self) -> None:
        """Forget all failures: the pods may be gone, and while the runtime asked nobody, it did not tell."""
        self._failed.clear()

    def removed(self, pod: nri.PodSandbox) -> None:
        """Note that a pod is gone: nobody tries again to create its containers."""
        for name in [each for each in self._failed if each[:2] == (pod.namespace, pod.name)]:
            del self._failed[name]


def _name(pod: nri.PodSandbox, container: nri.Container) -> _Name:
    return pod.namespace, pod.name, container.name
