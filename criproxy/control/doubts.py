"""CPUs on which a container may be running beside those that it was last seen on.

An update that gives CPUs counts from the moment that it is sent, and until the cgroup was read after it: another start
must not get in between. What the store remembers is from before our start, when updates and starts may have been under
way of which it knows nothing; the runtime goes on with them.
"""

from collections.abc import Callable, Collection, Container
from dataclasses import dataclass, field

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.workload import MAY_RUN, ContainerState


@dataclass(slots=True)
class Doubts:
    """By container key; *settled* is called whenever there is less to doubt."""

    settled: Callable[[], None]
    cpus: dict[str, CpuSet] = field(default_factory=dict)
    """All of them; for others to read."""
    _touched: set[str] = field(default_factory=set)
    _sent: dict[str, CpuSet] = field(default_factory=dict)
    _starts: dict[str, CpuSet] = field(default_factory=dict)

    def inherit(self, node: Node) -> list[str]:
        """Doubt what *node*, just loaded, says of containers that ran, and whether others are being started.

        Returns:
            The keys of those others: `start_settled` ends the doubt.
        """
        for key, applied in ((key, node.applied.get(key)) for key in node.grants):
            container = node.containers[key]
            if key == container.reservation:
                continue
            if container.state in MAY_RUN:
                self._sent[key] = node.topology.cpus
            elif container.state is ContainerState.CREATED:
                self._starts[key] = applied.cpus if applied else node.topology.cpus
            self._changed(key)
        return list(self._starts)

    def send(self, key: str, cpus: CpuSet) -> None:
        """An update with *cpus* is about to be sent."""
        self._sent[key] = self._sent.get(key, NO_CPUS) | cpus
        self._changed(key)

    def seen(self, key: str) -> None:
        """What *key* has was read, or nothing was sent after all."""
        if self._sent.pop(key, None) is not None:
            self._changed(key)
            self.settled()

    def start_settled(self, key: str) -> None:
        """No start of *key* is under way that began before our own."""
        if self._starts.pop(key, None) is not None:
            self._changed(key)
            self.settled()

    def keep(self, keys: Container[str]) -> None:
        """Forget the containers that are not among *keys*: they have ended."""
        for key in [key for key in self.cpus if key not in keys]:
            self.seen(key)
            self.start_settled(key)

    def changed(self) -> Collection[str]:
        """The keys under which `cpus` may have changed since this was last asked."""
        touched, self._touched = self._touched, set()
        return touched

    def unseen(self, key: str) -> bool:
        """Whether reading what *key* has would end a doubt."""
        return key in self._sent

    def _changed(self, key: str) -> None:
        self._touched.add(key)
        cpus = self._sent.get(key, NO_CPUS) | self._starts.get(key, NO_CPUS)
        if cpus:
            self.cpus[key] = cpus
        else:
            self.cpus.pop(key, None)


NO_DOUBTS = Doubts(lambda: None)
"""Where everything is known; nothing may be added."""
