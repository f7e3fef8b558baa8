"""Signs that somebody else decides about containers, too: another plugin, or another criproxy."""

from collections import Counter
from dataclasses import dataclass, field

from criproxy.cri.stamp import ANNOTATION
from criproxy.nri import api_pb2 as nri

_Name = tuple[str, str, str]
"""Namespace and name of a pod, and the name of a container."""


@dataclass(slots=True)
class Rivals:
    """What the creates of a runtime show. Nothing tells why one has failed."""

    stamped: str = ""
    """The container of the last create, if another criproxy between the kubelet and the runtime had placed it."""
    _failed: Counter[_Name] = field(default_factory=Counter)
    """How often the create of each container has failed after criproxy had answered, since one has succeeded."""

    @property
    def failed(self) -> tuple[int, str]:
        """How many creates have failed, and which container's last; those that have succeeded since do not count."""
        return self._failed.total(), "/".join(next(reversed(self._failed), ()))

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

    def removed(self, pod: nri.PodSandbox) -> None:
        """Note that a pod is gone: nobody tries again to create its containers."""
        for name in [each for each in self._failed if each[:2] == (pod.namespace, pod.name)]:
            del self._failed[name]


def _name(pod: nri.PodSandbox, container: nri.Container) -> _Name:
    return pod.namespace, pod.name, container.name
