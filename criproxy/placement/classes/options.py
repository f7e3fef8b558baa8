"""The models of the option ``classes`` and of those that belong to it."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from criproxy.placement.classes import amounts
from criproxy.placement.classes.shares import BandwidthShares, CacheShares
from criproxy.placement.options.policy_options import NamespacePattern
from criproxy.placement.options.usable import Section

QosName = Literal["Guaranteed", "Burstable", "BestEffort"]


class _Given(Section):
    @field_validator("*", mode="before")
    @classmethod
    def _has_value(cls, value: object) -> object:
        if value is None:
            raise ValueError("has no value")
        return value

    @model_serializer(mode="wrap")
    def _only_given(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only what the file gives: a class sets nothing else."""
        names = {each.alias or name: name for name, each in type(self).model_fields.items()}
        return {key: value for key, value in serialize(self).items() if names.get(key, key) in self.model_fields_set}


class ForOptions(_Given):
    """The containers that have the class without an annotation: those to which any of the three applies."""

    namespaces: tuple[NamespacePattern, ...] = ()
    """Namespaces whose containers have the class; * and ? are wildcards."""
    pools: tuple[str, ...] = ()
    """Pools or types of balloons whose containers have the class; * and ? are wildcards."""
    qos: tuple[QosName, ...] = ()
    """QoS classes whose containers have the class: Guaranteed, Burstable, BestEffort."""


class CpuOptions(_Given):
    """How much CPU time a container gets, and how fast its CPUs are."""

    weight: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """The share of CPU time when CPUs are short (cpu.weight), instead of the one that follows from the request."""
    idle: bool | None = None
    """Whether the container runs only when its CPUs have nothing else to do (cpu.idle)."""
    uclamp_min: amounts.PercentOption | None = None
    """The least utilisation that the kernel assumes when it chooses CPUs and frequencies, in percent."""
    uclamp_max: amounts.PercentOption | None = None
    """The highest utilisation that the kernel assumes, in percent."""
    burst: amounts.BurstOption | None = None
    """How much unused CPU time a container with a CPU limit can use later, in percent of its quota. idle: it has no
    quota while a whole CPU of its NUMA nodes is idle."""
    min_freq: amounts.FrequencyOption | None = None
    """The lowest frequency of the container's CPUs: 2GHz, 1800MHz, a number in kHz, or min, base or turbo."""
    max_freq: amounts.FrequencyOption | None = None
    """The highest frequency of the container's CPUs."""
    governor: amounts.Word | None = None
    """The governor of their frequencies, such as performance."""
    energy_performance_preference: amounts.EnergyOption | None = None
    """The preference between energy and performance: a name such as balance_power, or 0 (performance) to 255."""
    uncore_min_freq: amounts.KhzOption | None = None
    """The lowest frequency of the uncore of their dies; of several classes on a die, the highest counts."""
    uncore_max_freq: amounts.KhzOption | None = None
    """The highest frequency of the uncore of their dies."""
    disabled_c_states: tuple[amounts.IdleState, ...] | None = Field(default=None, alias="disabledCStates")
    """Idle states that the CPUs do not use, such as C6."""


class MemoryOptions(_Given):
    """How the kernel reclaims memory; needs cgroup v2."""

    high: amounts.AmountOption | None = None
    """From which use on the kernel slows the container down and reclaims its memory (memory.high): a size, or a
    percentage of the limit."""
    low: amounts.AmountOption | None = None
    """Memory that is reclaimed only if there is no other (memory.low): a size, or a percentage of the request."""
    min: amounts.AmountOption | None = None
    """Memory that is never reclaimed (memory.min): a size, or a percentage of the request."""
    swap_max: amounts.AmountOption | None = None
    """The most swap space (memory.swap.max): a size, or a percentage of the memory limit."""
    oom_group: bool | None = None
    """Whether the kernel kills all processes of the container if it kills one (memory.oom.group)."""


class DeviceLimits(_Given):
    """Limits of some block devices."""

    paths: tuple[amounts.DevicePattern, ...]
    """The devices; * and ? are wildcards."""
    read_bps: amounts.RateOption | None = None
    """Bytes per second that are read, such as 50M."""
    write_bps: amounts.RateOption | None = None
    """Bytes per second that are written."""
    read_iops: amounts.RateOption | None = Field(default=None, alias="readIOPS")
    """Reads per second, such as 1k."""
    write_iops: amounts.RateOption | None = Field(default=None, alias="writeIOPS")
    """Writes per second."""
    weight: amounts.Weight | None = None
    """The weight on these devices, from 1 to 1000; needs the scheduler bfq."""


class BlockIoOptions(_Given):
    """How a container uses block devices."""

    weight: amounts.Weight | None = None
    """The weight on all devices with the scheduler bfq, from 1 to 1000; 100 is the default."""
    devices: tuple[DeviceLimits, ...] = ()
    """Limits of some devices; of several for one device, the last one counts."""


class RdtShares(_Given):
    """Shares of caches and of memory bandwidth."""

    l2: CacheShares | None = None
    """The share of level 2 caches, in the forms of l3."""
    l3: CacheShares | None = None
    """The share of level 3 caches: 60%, 50-60%, bits (0-3) or a mask (0xf0); or a map from cache ids to shares, each
    of which may have code and data."""
    mb: BandwidthShares | None = None
    """The share of memory bandwidth: 50% or 1000MBps, or a list of both, of which the one that the machine can set
    counts; or a map from cache ids to these."""


class RdtOptions(RdtShares):
    """The caches and the memory bandwidth of a container; shares are of the class's partition."""

    partition: amounts.ClassName | None = None
    """The partition (see rdt.partitions) of the class; by default, the whole machine."""


class SchedulingOptions(_Given):
    """How the kernel schedules the threads of a container and their I/O."""

    policy: Literal["other", "batch", "idle", "fifo", "rr", "deadline"] | None = None
    """The policy, see sched(7)."""
    priority: Annotated[int, Field(ge=1, le=99)] | None = None
    """The priority for fifo and rr, from 1 to 99."""
    nice: Annotated[int, Field(ge=-20, le=19)] | None = None
    """The nice value for other and batch, from -20 to 19."""
    runtime: amounts.TimeOption | None = None
    """For deadline: the CPU time in each period, such as 10ms."""
    deadline: amounts.TimeOption | None = None
    """For deadline: until when in each period a thread gets it."""
    period: amounts.TimeOption | None = None
    """For deadline: the period; by default, the deadline."""
    flags: tuple[Literal["reset-on-fork", "reclaim", "dl-overrun"], ...] = ()
    """reset-on-fork: new threads and processes have the normal policy. reclaim and dl-overrun: see sched(7)."""
    io_class: Literal["none", "rt", "be", "idle"] | None = None
    """The class of I/O, see ioprio_set(2)."""
    io_priority: Annotated[int, Field(ge=0, le=7)] | None = None
    """The priority of I/O in the classes rt and be, from 0 (first) to 7."""


class IrqOptions(_Given):
    """The interrupts of a container's CPUs."""

    mode: Literal["away", "sink"] | None = None
    """away: the CPUs get only interrupts that the class claims; exclusive CPUs are treated in this way by default.
    sink: they get all interrupts that nobody claims."""
    claim: tuple[amounts.Glob, ...] = ()
    """Interrupts that go to the container's CPUs: names as in /proc/interrupts (* and ? are wildcards), or numbers."""


IrqOption = Annotated[
    IrqOptions,
    BeforeValidator(
        lambda value: {"mode": value} if isinstance(value, str) else value,
        json_schema_input_type=IrqOptions | Literal["away", "sink"],
    ),
]


class ContainerClassOptions(_Given):
    """A class. Each of its parts may also be chosen alone."""

    for_: ForOptions | None = Field(default=None, alias="for")
    """The containers that have the class without an annotation."""
    cpu: CpuOptions | None = None
    """How much CPU time a container gets, and how fast its CPUs are."""
    memory: MemoryOptions | None = None
    """How the kernel reclaims memory."""
    block_io: BlockIoOptions | None = Field(default=None, alias="blockIO")
    """How a container uses block devices."""
    rdt: RdtOptions | None = None
    """The caches and the memory bandwidth of a container."""
    scheduling: SchedulingOptions | None = None
    """How the kernel schedules the threads of a container and their I/O."""
    irq: IrqOption | None = None
    """The interrupts of a container's CPUs: a mapping, or only its mode."""

    def part(self, kind: str) -> Section | None:
        """Return the part of a *kind*, one of `model.controls.KINDS`."""
        found: Section | None = getattr(self, "block_io" if kind == "blockIO" else kind)
        return found


class RdtSection(_Given):
    """What several classes share of caches and memory bandwidth."""

    partitions: dict[amounts.ClassName, RdtShares] = Field(default_factory=dict)
    """Parts of the caches: a class has no cache of another partition. Their shares are of the machine."""
    optional: tuple[Literal["l2", "l3", "mb"], ...] = ()
    """Resources that machines may lack: then, classes do not set them there."""
