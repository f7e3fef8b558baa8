"""The parts that every other part of the controller may use, as one value: no part reaches them through another."""

from dataclasses import dataclass
from math import inf

from criproxy.cri.pods import Pods
from criproxy.cri.runtime import RuntimeClient
from criproxy.node.cgroups import Cgroups
from criproxy.node.counters import Counters
from criproxy.node.in_flight import InFlight
from criproxy.node.locks import Locks
from criproxy.node.record.persister import Persister
from criproxy.node.record.state import NodeState
from criproxy.node.settings import InForce, Settings
from criproxy.process.failures import Failures
from criproxy.process.logger import Log
from criproxy.process.tasks import Tasks, wait_at_most

UPDATE_OTHERS = "update others"
"""The name of the background work that waits until a create is on disk, and then moves other containers for it."""


@dataclass(frozen=True, slots=True)
class Context:
    """The parts below all others."""

    state: NodeState
    """The node, and the only way to change it."""
    persister: Persister
    """Writes the node to disk."""
    runtime: RuntimeClient
    """For criproxy's own calls."""
    pods: Pods
    """The specifications of pods, where the kubelet serves them."""
    cgroups: Cgroups
    """Read what containers have applied."""
    locks: Locks
    """One for each container: the kubelet's calls and our updates of it run one after the other."""
    in_flight: InFlight
    """Creates, starts and updates whose outcome is not known yet."""
    tasks: Tasks
    """Background work."""
    in_force: InForce
    """The settings in force; a reload replaces them."""
    failures: Failures
    """Failures of criproxy itself."""
    counters: Counters
    """Counts since the start."""
    log: Log

    @property
    def settings(self) -> Settings:
        """Limits and switches in force now."""
        return self.in_force.settings

    async def durable(self, own: str = "") -> None:
        """Wait until what was decided is on disk, as `Persister.durable`, and no longer than a call waits for it."""
        limit_s = self.settings.durable_s
        await wait_at_most(None if limit_s == inf else limit_s, self.persister.durable(own))

    @property
    def is_before_change(self) -> bool:
        """Whether the configuration has changed since the last run, and the node does not have it yet.

        If the last one is unknown, the state is new or was lost, which is no change.
        """
        return self.state.node.configuration not in ("", self.settings.configuration)
