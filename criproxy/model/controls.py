"""What a class sets beside CPUs, memory nodes and devices: values of cgroup files, and what another process applies.

`Controls` is part of a grant: what CRI itself can say, in the field ``unified`` of a container's resources, and which
classes the container has. `Desired` is everything else as one map, which the daemon computes from its node and sends to
`criproxy controls`; only that process may write it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

KINDS = ("cpu", "memory", "blockIO", "rdt", "scheduling", "irq")
"""The parts of a class in a policy file; a container may have each of another class."""
DEFAULTS: Mapping[str, str] = {
    "memory.high": "max",
    "memory.low": "0",
    "memory.min": "0",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
    "cpu.weight": "",
    "cpu.idle": "0",
    "cpu.uclamp.min": "0.00",
    "cpu.uclamp.max": "max",
    "cpu.max.burst": "0",
    "io.weight": "default 100",
    "io.bfq.weight": "default 100",
}
"""The files of cgroup v2 that classes set → their content when nobody has written them; empty: it follows from the
container's CPU request (its shares)."""
NATURAL = ""
"""The value of a file whose content follows from what the kubelet requests, by a formula of the runtime's."""
IDLE = "cpu.idle"
WEIGHT = "cpu.weight"
BURST = "cpu.max.burst"
SWAP = "memory.swap.max"
WEIGHT_FILES = ("io.bfq.weight", "io.weight")
"""The weight on all block devices: that of the scheduler bfq, which counts where both are there, and the kernel's."""
_ALL_PERCENT = 100.0
_SMALLEST_PAGE, _LARGEST_PAGE = 4096, 65536
_BYTES = frozenset(file for file in DEFAULTS if file.startswith("memory.")) - {"memory.oom.group"}


@dataclass(frozen=True, slots=True)
class Controls:
    """The classes of one container, and what they set through the runtime."""

    values: tuple[tuple[str, str], ...] = ()
    """The file with cgroup v2, one of `DEFAULTS` → its content as the kernel shows it; sorted. A value from `DEFAULTS`
    is there if a class has set another one before."""
    classes: tuple[tuple[str, str], ...] = ()
    """Kind → name of the class; sorted."""

    def value(self, file: str) -> str | None:
        """Return the content that *file* should have; None: it is left alone."""
        return next((value for name, value in self.values if name == file), None)

    def class_of(self, kind: str) -> str:
        """Return the name of the class of that *kind*; empty if it has none."""
        return next((name for each, name in self.classes if each == kind), "")


NO_CONTROLS = Controls()


def as_shown(file: str, value: str) -> str:
    """Return what the kernel shows in *file* after *value* was written: bytes are whole pages, 100 is the maximum.

    From 1 MiB on, bytes are multiples of the largest page of any machine. Of a file with values for several devices,
    only the first line counts.
    """
    text = next(iter(value.splitlines()), "").strip()
    if file in _BYTES and text.isdecimal():
        page = _LARGEST_PAGE if int(text) >= 16 * _LARGEST_PAGE else _SMALLEST_PAGE
        return str(int(text) // page * page)
    if file.startswith("io.") and text.isdecimal():
        return f"default {text}"
    if not file.startswith("cpu.uclamp.") or not text.replace(".", "", 1).isdecimal():
        return text
    return "max" if float(text) >= _ALL_PERCENT else f"{float(text):.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How the threads of a container are scheduled, see sched(7) and ioprio_set(2)."""

    policy: str = ""
    """other, batch, idle, fifo, rr or deadline; empty: unchanged."""
    priority: int = 0
    """1–99 for fifo and rr."""
    nice: int | None = None
    runtime_us: int = 0
    deadline_us: int = 0
    period_us: int = 0
    """The last three for deadline only."""
    flags: tuple[str, ...] = ()
    """reset-on-fork, reclaim, dl-overrun."""
    io_class: str = ""
    """none, rt, be or idle; empty: unchanged."""
    io_priority: int | None = None
    """0–7 for rt and be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """Limits for some block devices; None: no limit."""

    devices: tuple[str, ...] = ()
    """Paths with * and ?, such as ``/dev/sd*``."""
    read_bps: int | None = None
    write_bps: int | None = None
    read_iops: int | None = None
    write_iops: int | None = None
    weight: int | None = None
    """1–1000, with the scheduler bfq."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockIo:
    """Block I/O of a container."""

    weight: int | None = None
    """1–1000, of all devices with the scheduler bfq."""
    throttles: tuple[Throttle, ...] = ()
    """Of several for one device, the last one counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTuning:
    """Frequencies and idle states of CPUs; empty or None: unchanged."""

    min_frequency: str = ""
    max_frequency: str = ""
    """kHz as decimal digits, or min, base or turbo, which are the machine's."""
    governor: str = ""
    energy_preference: str = ""
    """A name, or 0–255."""
    uncore_min_khz: int | None = None
    uncore_max_khz: int | None = None
    disabled_c_states: tuple[str, ...] = ()
    """Names as in ``cpuidle/stateN/name``."""
    max_latency_us: int | None = None
    """Idle states with a longer exit latency are disabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RdtAllocation:
    """One line of a schemata file, before the machine is known."""

    resource: str
    """L2 or L3, their parts L2CODE, L2DATA, L3CODE and L3DATA, or MB."""
    ids: str = "all"
    """Cache ids in kernel notation, or all."""
    share: str
    """For caches ``60%``, ``50-60%``, bits ``0-3`` or a mask ``0xf0``; for MB ``50%`` or ``1000MBps``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RdtClass:
    """A control group of resctrl."""

    name: str
    allocations: tuple[RdtAllocation, ...] = ()
    """Shares are of the class's partition."""
    partition: str = ""
    """Empty: the whole machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RdtPartition:
    """A part of the caches that classes of other partitions do not have."""

    name: str
    allocations: tuple[RdtAllocation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rdt:
    """All control groups of criproxy."""

    classes: tuple[RdtClass, ...] = ()
    partitions: tuple[RdtPartition, ...] = ()
    optional: tuple[str, ...] = ()
    """Resources (L2, L3, MB) that a machine may lack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IrqClaim:
    """Interrupts that belong to some CPUs."""

    names: tuple[str, ...]
    """Globs of the names in /proc/interrupts, or numbers."""
    cpus: str
    """In kernel notation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Irqs:
    """Where interrupts go."""

    cpus: str
    """All that are not claimed, and new ones: in kernel notation, never empty."""
    claims: tuple[IrqClaim, ...] = ()
    """The first one that matches counts."""
    controllable: tuple[str, ...] = ("*",)
    """Globs of the names of those that may be moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerControls:
    """What the controls service applies to one container."""

    cgroup: str
    """Its cgroup below the mount (cgroup v2) or below the folder of a controller (cgroup v1)."""
    scheduling: Scheduling | None = None
    block_io: BlockIo | None = None
    rdt_class: str = ""
    """Empty: none, it stays in the root group."""
    burst_us: int | None = None
    """``cpu.cfs_burst_us`` with cgroup v1; with v2 the runtime writes it."""
    replaced: tuple[Scheduling, ...] = ()
    """In the service's journal only: what threads may have from before *scheduling*, if the service was killed then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """Everything that the controls service is to apply; what it has applied and is not here any more, it puts back."""

    containers: Mapping[str, ContainerControls] = field(default_factory=dict)
    """By id."""
    tunings: Mapping[str, CpuTuning] = field(default_factory=dict)
    """Class → what it sets."""
    cpus: Mapping[str, str] = field(default_factory=dict)
    """Class → its CPUs in kernel notation; no CPU is in two of them."""
    rdt: Rdt | None = None
    irqs: Irqs | None = None


NOTHING_DESIRED = Desired()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that the controls service could not apply; the rest is applied."""

    what: str
    """A container's id, else irqs, cpus, rdt, journal or irqbalance."""
    text: str
    """A sentence, with the file and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlsAnswer:
    """How the controls service answers to ``apply``; its ``status`` has the same, and more."""

    generation: int = 0
    """Of the last `Desired` that it has got; 0: none since its start."""
    needs_whole: bool = False
    """Whether it did not take the changes, because it does not have the generation on which they are based."""
    pending: bool = False
    """Whether some of it is not applied yet; it goes on with that."""
    troubles: tuple[Trouble, ...] = ()
    troubles_left_out: int = 0
    drift: int = 0
    """How many files and threads others have changed since its start."""
