"""What classes ask for that a machine cannot have: what is missing, and how to have it if that is possible."""

from collections.abc import Iterator

from criproxy.model.controls import BURST, DEFAULTS
from criproxy.model.machine.controllable import Controllable
from criproxy.model.machine.resctrl import resolve
from criproxy.model.machine.scheduler import misfit
from criproxy.model.machine.topology import Topology
from criproxy.placement.classes.amounts import LEVELS, WHILE_IDLE
from criproxy.placement.classes.options import BlockIoOptions, CpuOptions, MemoryOptions, SchedulingOptions
from criproxy.placement.classes.parts import rdt_of, scheduling_of
from criproxy.placement.classes.table import Table
from criproxy.placement.options.policy_options import Misfit, Path

_TUNINGS = ("min_freq", "max_freq", "governor", "energy_performance_preference")
_V1 = "needs cgroup v2, and this machine has v1"


def unfit(table: Table, topology: Topology, *, every_cpu: bool) -> Iterator[Misfit]:
    """Yield what the machine of *table* cannot have.

    Args:
        table: all classes.
        topology: that of the machine.
        every_cpu: whether containers may run on all CPUs of the machine.
    """
    machine = table.machine
    for parts in table.classes.values():
        if parts.cpu:
            yield from _files(parts.cpu, "cpu", machine, topology, parts.paths["cpu"])
            yield from _tunings(parts.cpu, machine, parts.paths["cpu"])
        if parts.memory:
            yield from _files(parts.memory, "memory", machine, topology, parts.paths["memory"])
        if parts.blockIO:
            yield from _block_io(parts.blockIO, machine, parts.paths["blockIO"])
        if parts.scheduling:
            yield from _scheduling(parts.scheduling, machine, parts.paths["scheduling"], every_cpu=every_cpu)
    yield from _rdt(table)


def unfit_of_peers(part: object, machine: Controllable, *, every_cpu: bool) -> Iterator[Misfit]:
    """Yield what the *machine* cannot have of the *part* of a class that a peer's option defines, with paths in it."""
    if isinstance(part, CpuOptions):
        yield from _tunings(part, machine, ())
    elif isinstance(part, SchedulingOptions):
        yield from _scheduling(part, machine, (), every_cpu=every_cpu)


def _scheduling(options: SchedulingOptions, machine: Controllable, path: Path, *, every_cpu: bool) -> Iterator[Misfit]:
    if text := misfit(scheduling_of(options), machine.scheduler, every_cpu=every_cpu):
        yield Misfit(path, text)


def _files(
    part: CpuOptions | MemoryOptions, controller: str, machine: Controllable, topology: Topology, path: Path
) -> Iterator[Misfit]:
    for option in (each for each in type(part).model_fields if each in part.model_fields_set):
        file = BURST if option == "burst" else f"{controller}.{option.replace('_', '.')}"
        needs_file = file in DEFAULTS and getattr(part, option) != WHILE_IDLE
        if needs_file and (text := _without(file, machine, topology)):
            yield Misfit((*path, _alias(part, option)), text)


def _tunings(cpu: CpuOptions, machine: Controllable, path: Path) -> Iterator[Misfit]:
    given = [option for option in _TUNINGS if option in cpu.model_fields_set]
    if given and not machine.governors:
        text = "Linux does not control the frequencies of this machine's CPUs (there is no cpufreq)"
        yield Misfit((*path, _alias(cpu, given[0])), text)
    elif given:
        yield from _frequencies(cpu, machine, path)
    uncore = [option for option in ("uncore_min_freq", "uncore_max_freq") if option in cpu.model_fields_set]
    if uncore and not machine.uncore:
        text = "this machine has no uncore frequencies (no driver intel_uncore_frequency)"
        yield Misfit((*path, _alias(cpu, uncore[0])), text)
    for index, state in enumerate(cpu.disabled_c_states or ()):
        if state not in machine.c_states:
            known = ", ".join(machine.c_states) or "none"
            text = f"the CPUs have no idle state {state!r}; those of this machine are: {known}"
            yield Misfit((*path, "disabledCStates", index), text)


def _without(file: str, machine: Controllable, topology: Topology) -> str:
    """Return why the machine has no *file*; empty if it has, as far as that is known."""
    if topology.has_file(file) if machine.unified else file == BURST and machine.v1_burst:
        return ""
    if not machine.unified and file != BURST:
        return _V1
    if file == "memory.swap.max":
        return "the kernel of this machine does not count swap space (no memory.swap.max)"
    return f"the kernel of this machine has no {file if machine.unified else 'cpu.cfs_burst_us'} for containers"


def _frequencies(cpu: CpuOptions, machine: Controllable, path: Path) -> Iterator[Misfit]:
    if cpu.governor and cpu.governor not in machine.governors:
        text = f"there is no governor {cpu.governor!r}; this machine has: {', '.join(machine.governors)}"
        yield Misfit((*path, "governor"), text)
    preference, names = cpu.energy_performance_preference, machine.energy_preferences
    if preference and not names:
        text = "the CPUs of this machine have no energy performance preference"
        yield Misfit((*path, "energyPerformancePreference"), text)
    elif preference and not preference.isdecimal() and preference not in names:
        text = f"there is no preference {preference!r}; this machine has: {', '.join(names)}, and 0 to 255"
        yield Misfit((*path, "energyPerformancePreference"), text)
    for option, value in (("minFreq", cpu.min_freq), ("maxFreq", cpu.max_freq)):
        if value and value not in LEVELS and machine.max_khz and not machine.min_khz <= int(value) <= machine.max_khz:
            text = f"{value} kHz is not possible: the CPUs have {machine.min_khz} to {machine.max_khz} kHz"
            yield Misfit((*path, option), text)


def _block_io(block_io: BlockIoOptions, machine: Controllable, path: Path) -> Iterator[Misfit]:
    text = "needs the scheduler bfq for block devices, which this kernel does not have (modprobe bfq)"
    if block_io.weight is not None and not machine.weights:
        yield Misfit((*path, "weight"), text)
    for index, each in enumerate(block_io.devices):
        if each.weight is not None and not machine.weights:
            yield Misfit((*path, "devices", index, "weight"), text)
        if each.model_fields_set - {"paths", "weight"} and not machine.throttles:
            why = "the kernel of this machine cannot limit block devices for containers"
            yield Misfit((*path, "devices", index), why)


def _rdt(table: Table) -> Iterator[Misfit]:
    asked = rdt_of(table)
    if asked is None:
        return
    paths = {name: parts.paths["rdt"] for name, parts in table.classes.items() if parts.rdt}
    allocations = [*(part.allocations for part in asked.classes), *(part.allocations for part in asked.partitions)]
    used = {each.resource[:2] for part in allocations for each in part}
    if table.machine.resctrl is None:
        if used - set(asked.optional):
            yield Misfit(next(iter(paths.values())), table.machine.no_resctrl or "this machine has no resctrl")
        return
    for text in resolve(asked, table.machine.resctrl).mistakes:
        name = next((name for name in paths if text.startswith(f"RDT class {name}:")), "")
        yield Misfit(paths[name] if name else ("rdt",), text)


def _alias(part: CpuOptions | MemoryOptions, name: str) -> str:
    return type(part).model_fields[name].alias or name
