"""What every part of the controller may use, as one value: no part reaches through another one for it."""

from dataclasses import dataclass

from criproxy.control.containers.cgroups import Cgroups
from criproxy.control.containers.in_flight import InFlight
from criproxy.control.containers.locks import Locks
from criproxy.control.node.persister import Persister
from criproxy.control.node.state import NodeState
from criproxy.control.settings import InForce, Settings
from criproxy.cri.runtime import RuntimeClient
from criproxy.observe.counters import Counters
from criproxy.observe.failures import Failures
from criproxy.observe.logger import Log
from criproxy.observe.tasks import Tasks


@dataclass(frozen=True, slots=True)
class Context:
    """The parts below all others; they know nothing of each other."""

    state: NodeState
    """The node, and the only way to change it."""
    persister: Persister
    """What of it is on disk."""
    runtime: RuntimeClient
    """For calls of our own."""
    cgroups: Cgroups
    """What containers really have."""
    locks: Locks
    """One for each container: the kubelet's calls and our updates of it pass one after the other."""
    in_flight: InFlight
    """Starts and updates of which the end is not known yet."""
    tasks: Tasks
    """Background work."""
    in_force: InForce
    """The settings in force; a reload brings others."""
    failures: Failures
    """What failed in criproxy itself."""
    counters: Counters
    """What has been counted since the start."""
    log: Log

    @property
    def settings(self) -> Settings:
        """Limits and switches in force now."""
        return self.in_force.settings
