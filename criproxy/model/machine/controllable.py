"""What of the settings of classes a machine has: read by `host.controllable`, compared with policy files."""

from dataclasses import dataclass, field

from criproxy.model.machine.resctrl import Resctrl
from criproxy.model.machine.scheduler import Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllable:
    """What classes can set on a machine beside `Topology.control_files`; by default, no special hardware."""

    unified: bool = True
    """Whether cgroups are of version 2."""
    v1_burst: bool = False
    """With cgroup v1: whether containers have ``cpu.cfs_burst_us``."""
    page_bytes: int = 4096
    throttles: bool = True
    """Whether cgroups can limit block devices."""
    weights: bool = True
    """Whether cgroups can have weights on block devices: with the scheduler bfq, or with ``io.weight``."""
    governors: tuple[str, ...] = ()
    """Of the frequencies of CPUs; empty: Linux does not control these."""
    energy_preferences: tuple[str, ...] = ()
    min_khz: int = 0
    max_khz: int = 0
    """The lowest and the highest frequency of any CPU; 0: unknown."""
    c_states: tuple[str, ...] = ()
    """Names of the idle states."""
    uncore: bool = False
    """Whether the frequencies of the uncore can be set."""
    resctrl: Resctrl | None = None
    no_resctrl: str = ""
    """Why there is no resctrl, and how to have it; empty if there is."""
    scheduler: Scheduler = field(default_factory=Scheduler)


ANY = Controllable()
"""Where the machine is unknown."""
