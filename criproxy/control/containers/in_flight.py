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
class InFlight:
    """By container key; *settled* is called whenever there is less to doubt."""

    settled: Callable[[], None]
    starting: set[str] = field(default_factory=set)
    """Keys of containers whose StartContainer the runtime has and has not answered."""
    cpus: dict[str, CpuSet] = field(default_factory=dict)
    """All of them; for others to read."""
    _touched: set[str] = field(default_factory=set)
    _sent: dict[str, CpuSet] = field(default_factory=dict)
    _starts: dict[str, CpuSet] = field(default_factory=dict)

    def inherit(self, node: Node) -> list[str]:
        """Doubt what *node*, just loaded, says of containers that ran.

        Returns:
            The keys of others, which may be being started: to be told to `start`.
        """
        known = [(key, node.containers[key].state) for key in node.grants if key != node.containers[key].reservation]
        for key, state in known:
            if state in MAY_RUN:
                self.send(key, node.topology.cpus)
        return [key for key, state in known if state in (ContainerState.CREATED, ContainerState.UNKNOWN)]

    def send(self, key: str, cpus: CpuSet) -> None:
        """An update with *cpus* is about to be sent."""
        self._sent[key] = self._sent.get(key, NO_CPUS) | cpus
        self._changed(key)

    def start(self, key: str, cpus: CpuSet) -> None:
        """A start of *key* with *cpus* may be under way, and nobody will tell us its end."""
        self._starts[key] = self._starts.get(key, NO_CPUS) | cpus
        self._changed(key)

    def start_settled(self, key: str) -> None:
        """That start has ended: from now on, reading what *key* has ends the doubt."""
        if (cpus := self._starts.pop(key, None)) is not None:
            self.send(key, cpus)

    def seen(self, key: str) -> None:
        """What *key* has was read, or nothing was sent after all."""
        if self._sent.pop(key, None) is not None:
            self._changed(key)
            self.settled()

    def may_start(self, key: str) -> bool:
        """Whether a start of *key* may be under way of which nobody will tell us the end."""
        return key in self._starts

    def keep(self, keys: Container[str]) -> None:
        """Forget the containers that are not among *keys*: they have ended."""
        for key in [key for key in self.cpus if key not in keys]:
            self.start_settled(key)
            self.seen(key)

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


NOTHING_IN_FLIGHT = InFlight(lambda: None)
"""Where everything is known; nothing may be added."""
