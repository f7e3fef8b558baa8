"""The classes of a policy file → what the controls service needs of them."""

from criproxy.model.controls import BlockIo, CpuTuning, Rdt, RdtAllocation, RdtClass, RdtPartition, Scheduling, Throttle
from criproxy.placement.classes.amounts import WHILE_IDLE
from criproxy.placement.classes.options import BlockIoOptions, CpuOptions, RdtShares, SchedulingOptions
from criproxy.placement.classes.table import POOL, Table
from criproxy.placement.options.class_rules import ClassParts, IrqRule


def parts_of(table: Table) -> ClassParts:
    """Return everything that is not a value of a cgroup file."""
    classes = table.classes.items()
    tunings = {name: tuning_of(each.cpu) for name, each in classes if each.cpu}
    scheduling = {name: scheduling_of(each.scheduling) for name, each in classes if each.scheduling}
    block_io = {name: _block_io(each.blockIO, table) for name, each in classes if each.blockIO}
    bursts = {name: each.cpu.burst for name, each in classes if each.cpu and each.cpu.burst}
    limited = {} if table.machine.unified else {name: burst for name, burst in bursts.items() if burst != WHILE_IDLE}
    return ClassParts(
        tunings={name: each for name, each in tunings.items() if each != CpuTuning()},
        roles={role: name for role, (name, _) in table.roles.items()},
        scheduling={name: each for name, each in scheduling.items() if each != Scheduling()},
        block_io={name: each for name, each in block_io.items() if each != BlockIo()},
        rdt=rdt_of(table),
        bursts={name: burst.hundredths for name, burst in limited.items()},
        idle_bursts=frozenset([name for name, burst in bursts.items() if burst == WHILE_IDLE]),
        irqs={name: IrqRule(mode=each.irq.mode or "", claim=each.irq.claim) for name, each in classes if each.irq},
        controllable=table.controllable,
        pools=tuple((rule.kind, rule.pattern, rule.name) for rule in table.rules if rule.by == POOL),
    )


def tuning_of(cpu: CpuOptions) -> CpuTuning:
    """Return what a class sets on its CPUs."""
    return CpuTuning(
        min_frequency=cpu.min_freq or "",
        max_frequency=cpu.max_freq or "",
        governor=cpu.governor or "",
        energy_preference=cpu.energy_performance_preference or "",
        uncore_min_khz=cpu.uncore_min_freq,
        uncore_max_khz=cpu.uncore_max_freq,
        disabled_c_states=cpu.disabled_c_states or (),
    )


def scheduling_of(options: SchedulingOptions) -> Scheduling:
    """Return how a class schedules threads."""
    return Scheduling(
        policy=options.policy or "",
        priority=options.priority or 0,
        nice=options.nice,
        runtime_us=options.runtime or 0,
        deadline_us=options.deadline or 0,
        period_us=options.period or options.deadline or 0,
        flags=options.flags,
        io_class=options.io_class or "",
        io_priority=options.io_priority,
    )


def _block_io(options: BlockIoOptions, table: Table) -> BlockIo:
    throttles = [Throttle(devices=each.paths, **each.model_dump(exclude={"paths"})) for each in options.devices]
    return BlockIo(weight=None if table.machine.unified else options.weight, throttles=tuple(throttles))


def rdt_of(table: Table) -> Rdt | None:
    """Return the control groups of all classes; None if no class needs one."""
    shares = [(name, each.rdt) for name, each in table.classes.items() if each.rdt]
    classes = [
        RdtClass(name=name, allocations=_allocations(rdt), partition=rdt.partition or "") for name, rdt in shares
    ]
    partitions = [
        RdtPartition(name=name, allocations=_allocations(each)) for name, each in table.rdt.partitions.items()
    ]
    optional = tuple(name.upper() for name in table.rdt.optional)
    return Rdt(classes=tuple(classes), partitions=tuple(partitions), optional=optional) if classes else None


def _allocations(options: RdtShares) -> tuple[RdtAllocation, ...]:
    given = {"L2": options.l2, "L3": options.l3, "MB": options.mb}
    return tuple(each for resource, shares in given.items() if shares for each in shares.allocations(resource))
