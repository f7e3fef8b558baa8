"""What is wrong with classes on every machine: contradictions, and names that nothing has."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from criproxy.model.controls import KINDS, CpuTuning
from criproxy.model.machine.scheduler import REAL_TIME
from criproxy.placement.classes import options as models
from criproxy.placement.classes.amounts import LEVELS, Amount
from criproxy.placement.classes.choose import CLASS, KEYS
from criproxy.placement.classes.parts import tuning_of
from criproxy.placement.classes.shares import width
from criproxy.placement.classes.table import Parts, Rule, Table
from criproxy.placement.options.policy_options import Misfit, Path

_ROOT = "system/default"
"""The class of the root group of resctrl: all have it that have no other."""
_RESERVED = ("info", "mon_data", "mon_groups")
"""Names in the root of resctrl."""
OWN = ("classes", "rdt")
"""The options that define classes and are criproxy's own."""
_WHOLE = 10_000
"""100 %."""
_PAGE = 4096
"""Bytes of the smallest pages that Linux has."""


def of_class(name: str, options: models.ContainerClassOptions, path: Path) -> Iterator[Misfit]:
    """Yield what is wrong with a class of the option ``classes``, which is at *path*."""
    if not any(options.part(kind) for kind in KINDS):
        yield Misfit(path, f"the class {name!r} sets nothing: give cpu, memory, blockIO, rdt, scheduling or irq")


def of_part(kind: str, part: object, path: Path) -> Iterator[Misfit]:
    """Yield what is wrong with the part of a *kind* of a class, which is at *path*."""
    if not any(getattr(part, name) not in (None, ()) for name in getattr(part, "model_fields_set", ())):
        if path[0] in OWN:  # others are left without effect
            yield Misfit(path, "sets nothing: give an option, or leave it out")
        return
    match part:
        case models.CpuOptions():
            yield from _cpu(part, path)
        case models.MemoryOptions():
            yield from _memory(part, path)
        case models.BlockIoOptions():
            yield from _block_io(part, path)
        case models.SchedulingOptions():
            yield from _scheduling(part, path)


def _cpu(cpu: models.CpuOptions, path: Path) -> Iterator[Misfit]:
    if cpu.idle and cpu.weight is not None:
        yield Misfit((*path, "weight"), "has no effect with idle: the kernel gives idle containers the least weight")
    if cpu.uclamp_min and cpu.uclamp_max and cpu.uclamp_min.hundredths > cpu.uclamp_max.hundredths:
        yield Misfit((*path, "uclampMin"), f"is {cpu.uclamp_min.text}, more than uclampMax ({cpu.uclamp_max.text})")
    for low, high, least, most in (
        ("minFreq", "maxFreq", cpu.min_freq, cpu.max_freq),
        ("uncoreMinFreq", "uncoreMaxFreq", cpu.uncore_min_freq, cpu.uncore_max_freq),
    ):
        if least is not None and most is not None and _above(str(least), str(most)):
            yield Misfit((*path, low), f"is {_frequency(str(least))}, more than {high} ({_frequency(str(most))})")
    preference = cpu.energy_performance_preference
    if cpu.governor == "performance" and preference not in (None, "performance", "0"):
        text = f"{preference} does not fit the governor performance, with which the kernel takes only performance or 0"
        yield Misfit((*path, "energyPerformancePreference"), text)


def _above(least: str, most: str) -> bool:
    """Whether a frequency is higher than another one; a number and a word are not compared."""
    if least in LEVELS and most in LEVELS:
        return LEVELS.index(least) > LEVELS.index(most)
    return least.isdecimal() and most.isdecimal() and int(least) > int(most)


def _frequency(text: str) -> str:
    return f"{text} kHz" if text.isdecimal() else text


def _memory(memory: models.MemoryOptions, path: Path) -> Iterator[Misfit]:
    values = ((each.alias or name, getattr(memory, name)) for name, each in type(memory).model_fields.items())
    given = {name: value for name, value in values if isinstance(value, Amount)}
    for name, amount in given.items():
        if (amount.hundredths or 0) > _WHOLE:
            whole = "the request" if name in ("low", "min") else "the memory limit"
            yield Misfit((*path, name), f"{amount.text} is more than {whole}: give at most 100%")
        elif 0 < amount.size < _PAGE:
            text = f"{amount.text} is a number of bytes, and less than a page of memory: a percentage needs its %"
            yield Misfit((*path, name), text)
    if memory.high is not None and memory.high.of(_WHOLE) == 0:
        yield Misfit((*path, "high"), "must be above 0: with 0, the container could not run")
    sizes = {name: amount for name, amount in given.items() if amount.hundredths is None}
    for name, least in sizes.items():
        if name in ("low", "min") and (high := sizes.get("high")) and least.size > high.size:
            yield Misfit((*path, name), f"is {least.text}, more than high ({high.text})")


def _block_io(block_io: models.BlockIoOptions, path: Path) -> Iterator[Misfit]:
    for index, each in enumerate(block_io.devices):
        if not each.paths:
            yield Misfit((*path, "devices", index, "paths"), "names no device: give paths such as /dev/nvme*n1")
        if each.model_fields_set <= {"paths"}:
            text = "limits nothing: give readBps, writeBps, readIOPS, writeIOPS or weight"
            yield Misfit((*path, "devices", index), text)


def _scheduling(options: models.SchedulingOptions, path: Path) -> Iterator[Misfit]:
    policy = options.policy
    if policy in REAL_TIME and options.priority is None:
        yield Misfit((*path, "policy"), f"{policy} needs a priority from 1 (lowest) to 99")
    if options.priority is not None and policy not in REAL_TIME:
        yield Misfit((*path, "priority"), "has an effect only with the policies fifo and rr")
    if options.nice is not None and policy not in (None, "other", "batch"):
        yield Misfit((*path, "nice"), f"has no effect with the policy {policy}, only with other and batch")
    yield from _deadline(options, path)
    if options.flags and policy is None:
        yield Misfit((*path, "flags"), "need a policy")
    for flag in ("reclaim", "dl-overrun"):
        if flag in options.flags and policy not in (None, "deadline"):
            yield Misfit((*path, "flags"), f"{flag} has an effect only with the policy deadline")
    if options.io_priority is not None and options.io_class not in ("rt", "be"):
        yield Misfit((*path, "ioPriority"), "needs the ioClass rt or be")


def _deadline(options: models.SchedulingOptions, path: Path) -> Iterator[Misfit]:
    times = {"runtime": options.runtime, "deadline": options.deadline, "period": options.period}
    if options.policy != "deadline":
        for name, time_us in times.items():
            if time_us is not None:
                yield Misfit((*path, name), "has an effect only with the policy deadline")
        return
    if options.runtime is None or options.deadline is None:
        missing = "runtime" if options.runtime is None else "deadline"
        yield Misfit((*path, "policy"), f"deadline needs the option {missing}: runtime ≤ deadline ≤ period")
        return
    period = options.period if options.period is not None else options.deadline
    if not 2 <= options.runtime <= options.deadline <= period:
        said = f"{options.runtime}us, deadline {options.deadline}us and period {period}us"
        yield Misfit((*path, "runtime"), f"{said}: must be 2us ≤ runtime ≤ deadline ≤ period")


def of_table(table: Table) -> Iterator[Misfit]:
    """Yield what is wrong with the parts of all classes, and with the options that name classes."""
    for name, parts in table.classes.items():
        for kind, path in parts.paths.items():
            yield from of_part(kind, getattr(parts, kind), path)
        if parts.rdt:
            yield from _rdt(name, parts.rdt, parts.paths["rdt"], table.rdt)
    yield from _partitions(table.rdt)
    for path, name, kind in _dangling(table):
        if known := [*table.having(kind)][:8]:
            text = f"there is no class {name[:60]!r} with {kind}; classes with {kind} are: {', '.join(known)}"
            yield Misfit(path, text)


def notes(table: Table, may_name: Callable[[str], bool], *, every: bool) -> Iterator[Misfit]:
    """Yield what has no effect in the classes, and the options that name a class where none is defined.

    Args:
        table: all classes; a policy of CRI-RM names some, and defines none itself.
        may_name: whether some pods may use an annotation with a key that names a class.
        every: also yield the options that name none of the classes that are defined.
    """
    if table.rdt.partitions and not any(table.having("rdt")):
        yield Misfit(("rdt",), "has no effect: no class has rdt")
    chosen = {rule.name for rule in table.rules} | {name for name, _ in table.roles.values()} | {_ROOT}
    for name, parts in table.classes.items():
        if name not in chosen and not any(may_name(key) for key in (CLASS, *(KEYS[kind][0] for kind in parts.paths))):
            path = next(iter(parts.paths.values()))[:2]
            yield Misfit(
                path,
                "has no effect: no option gives it to a container, and annotations.allow permits no annotation with it",
            )
    yield from _behind_others(table.rules)
    for name, path in table.roles.values():
        cpu = table.classes.get(name, Parts()).cpu
        if cpu and tuning_of(cpu) == CpuTuning():
            yield Misfit(path, f"has no effect: the class {name!r} sets neither frequencies nor idle states")
    for path, name, kind in _dangling(table):
        if not (others := any(table.having(kind))) or every:
            text = f"has no effect: there is no class {name[:60]!r}"
            yield Misfit(path, f"{text} with {kind}" if others else f"{text}, and no other class with {kind}")


def _behind_others(rules: Iterable[Rule]) -> Iterator[Misfit]:
    first: dict[tuple[str, str, str], str] = {}
    for rule in rules:
        name = first.setdefault((rule.kind, rule.by, rule.pattern), rule.name)
        if name != rule.name:
            text = f"has no effect on the {rule.kind} of the {rule.by} {rule.pattern}: the class {name!r} comes first"
            yield Misfit(rule.path, text)


def _dangling(table: Table) -> Iterator[tuple[Path, str, str]]:
    """Yield the options that name a class that does not exist: where, the name, and the kind."""
    named = [(path, name, "cpu") for name, path in table.roles.values()]
    named += [(rule.path, rule.name, rule.kind) for rule in table.rules]
    for path, name, kind in named:
        if name not in table.having(kind):
            yield path, name, kind


def of_pools(patterns: Sequence[str], pools: Collection[str] | None, path: Path) -> Iterator[Misfit]:
    """Yield the *patterns* that none of *pools* has, which are at *path*; None: the policy has none with names."""
    for index, pattern in enumerate(patterns):
        if pools is None:
            yield Misfit((*path, index), "has no effect: this policy has no pools with names")
        elif not any(fnmatchcase(pool, pattern) for pool in pools):
            yield Misfit((*path, index), f"there is no {pattern[:60]!r}; there are: {', '.join(sorted(pools)[:8])}")


def _rdt(name: str, rdt: models.RdtOptions, path: Path, section: models.RdtSection) -> Iterator[Misfit]:
    if name in _RESERVED:
        yield Misfit(path, f"a class with rdt cannot be called {name}: resctrl has a file of this name")
    if rdt.partition is not None and rdt.partition not in section.partitions:
        known = ", ".join(section.partitions) or "none"
        text = f"there is no partition {rdt.partition!r}; those in rdt.partitions are: {known}"
        yield Misfit((*path, "partition"), text)


def _partitions(section: models.RdtSection) -> Iterator[Misfit]:
    """Yield a sentence for each cache of which the partitions want more than there is."""
    sums: dict[tuple[str, str, str], int] = {}
    for name, partition in section.partitions.items():
        path: Path = ("rdt", "partitions", name)
        if not partition.model_fields_set:
            yield Misfit(path, "sets nothing: give l2, l3 or mb")
        for resource, ids, part, percent in _widths(partition):
            key = resource, ids, part
            sums[key] = sums.get(key, 0) + percent
            if sums[key] > 100:
                where = "" if ids == "all" else f" of cache {ids}"
                text = f"together with the partitions before it, it takes {sums[key]} % of {resource}{where}"
                yield Misfit((*path, resource), f"{text}: partitions have at most 100 % together")


def _widths(shares: models.RdtShares) -> Iterator[tuple[str, str, str, int]]:
    for resource, given in (("l2", shares.l2), ("l3", shares.l3)):
        for each in given.shares if given else ():
            yield resource, each.ids, each.part, width(each.text)
