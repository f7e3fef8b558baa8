"""What the machine has that can be controlled: CPUs with frequencies and idle states, dies, and interrupts."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from criproxy.controls.lane import Lane
from criproxy.controls.machine.kernel import KernelFiles
from criproxy.host.files import entries, number_of
from criproxy.model.cpuset import CpuSet

CPUS = "sys/devices/system/cpu"
IRQS = "proc/irq"
_DIE = re.compile(r"package_(\d+)_die_(\d+)")
_UNCORE = re.compile(r"uncore\d+")
_COLUMN_CHARACTERS = 11
"""Of one CPU in /proc/interrupts: a space, and a counter with ten digits."""
_ALL_NAMES_EVERY = 10
"""Names of interrupts are read again so seldom if their numbers are the same: the file is long."""


@dataclass(frozen=True, slots=True)
class IdleState:
    """An idle state of a CPU."""

    path: str
    """Its folder."""
    name: str
    latency_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFacts:
    """One CPU."""

    policy: str = ""
    """The folder with its frequencies; empty: it has none."""
    policy_cpus: CpuSet = frozenset()
    """The CPUs that share it."""
    min_khz: int = 0
    max_khz: int = 0
    base_khz: int = 0
    """0: unknown."""
    governors: tuple[str, ...] = ()
    preferences: tuple[str, ...] = ()
    states: tuple[IdleState, ...] = ()
    package: int = 0
    die: int = 0


@dataclass(frozen=True, slots=True)
class Uncore:
    """Frequencies of a die, or of a part of a package, outside of its cores."""

    path: str
    package: int
    die: int | None
    """None: of the whole package."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What was read of a machine; paths are whole."""

    root: str = ""
    """Before /proc and /sys; empty: the machine's own."""
    cpus: Mapping[int, CpuFacts] = field(default_factory=dict)
    uncores: tuple[Uncore, ...] = ()
    irqs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Number → names in /proc/interrupts."""


class Facts:
    """Reads the machine, and keeps what does not change.

    Args:
        host_root: the folder with /proc and /sys.
        lane: where files are read.
        kernel: reads them.
    """

    def __init__(self, host_root: Path, lane: Lane, kernel: KernelFiles) -> None:
        self.problems: list[str] = []
        """What could not be read, as sentences."""
        self._root = str(host_root).rstrip("/")
        self._lane, self._kernel = lane, kernel
        self._cpus: dict[int, CpuFacts] = {}
        self._uncores: tuple[Uncore, ...] | None = None
        self._irqs: dict[int, tuple[str, ...]] = {}
        self._looks = 0

    def forget(self) -> None:
        """Read all again: something has vanished."""
        self._cpus, self._uncores, self._looks = {}, None, 0

    async def machine(self, cpus: CpuSet, *, uncore: bool, irqs: bool) -> Machine:
        """Return what is needed: of these CPUs, and with or without uncore frequencies and interrupts."""
        self.problems = []
        await self._read_cpus(cpus)
        if uncore and self._uncores is None:
            read = await self._lane.one(f"{self._root}/{CPUS}", self._read_uncores)
            self._uncores = read if isinstance(read, tuple) else None
        if irqs:
            await self._read_irqs()
        return Machine(
            self._root,
            {cpu: self._cpus[cpu] for cpu in cpus if cpu in self._cpus},
            (self._uncores or ()) if uncore else (),
            dict(self._irqs) if irqs else {},
        )

    async def _read_cpus(self, cpus: CpuSet) -> None:
        new = sorted(cpus - self._cpus.keys())
        names = {f"{self._root}/{CPUS}/cpu{cpu}": cpu for cpu in new}
        results = await self._lane.run((name, partial(self._read_cpu, name)) for name in names)
        for name, result in results.items():
            if isinstance(result, CpuFacts):
                self._cpus[names[name]] = result
            else:
                self.problems.append(f"cannot read {name}: {result}")

    def _read_cpu(self, folder: str) -> CpuFacts:
        self._kernel.read(f"{folder}/topology/physical_package_id")  # fails if there is no such CPU
        policy = f"{folder}/cpufreq"
        frequencies = Path(policy).is_dir()
        shared = self._text(f"{policy}/affected_cpus").split()
        return CpuFacts(
            policy=str(Path(policy).resolve()) if frequencies else "",
            policy_cpus=frozenset(int(each) for each in shared if each.isdigit()),
            min_khz=self._number(f"{policy}/cpuinfo_min_freq"),
            max_khz=self._number(f"{policy}/cpuinfo_max_freq"),
            base_khz=self._number(f"{policy}/base_frequency"),
            governors=tuple(self._text(f"{policy}/scaling_available_governors").split()),
            preferences=tuple(self._text(f"{policy}/energy_performance_available_preferences").split()),
            states=tuple(self._states(f"{folder}/cpuidle")),
            package=self._number(f"{folder}/topology/physical_package_id"),
            die=self._number(f"{folder}/topology/die_id"),
        )

    def _states(self, folder: str) -> Iterable[IdleState]:
        for name in entries(folder):
            if name.startswith("state"):
                path = f"{folder}/{name}"
                yield IdleState(path, self._text(f"{path}/name"), self._number(f"{path}/latency"))

    def _read_uncores(self) -> tuple[Uncore, ...]:
        """Return the uncore domains; where the kernel has those of newer machines, these only."""
        top = f"{self._root}/{CPUS}/intel_uncore_frequency"
        names = entries(top)
        domains = filter(_UNCORE.fullmatch, names)
        newer = [Uncore(f"{top}/{each}", self._number(f"{top}/{each}/package_id"), None) for each in domains]
        dies = ((each, _DIE.fullmatch(each)) for each in names)
        older = [Uncore(f"{top}/{each}", int(found[1]), int(found[2])) for each, found in dies if found]
        return tuple(newer or older)

    async def _read_irqs(self) -> None:
        listing, names = f"{self._root}/{IRQS}", f"{self._root}/proc/interrupts"
        numbers = await self._lane.one(listing, partial(_numbers, listing))
        if not isinstance(numbers, frozenset):
            if numbers is not None:
                self.problems.append(f"cannot read {listing}: {numbers}")
            return
        if numbers == self._irqs.keys() and self._looks % _ALL_NAMES_EVERY:
            self._looks += 1
            return
        text = await self._lane.one(names, partial(Path(names).read_text, errors="replace"))
        if isinstance(text, Exception):
            self.problems.append(f"cannot read {names}: {text}")
        if isinstance(text, str):
            found = irq_names(text)
            self._irqs = {number: found.get(number, ()) for number in numbers}
            self._looks = 1

    def _text(self, path: str) -> str:
        try:
            return self._kernel.read(path)
        except OSError:  # drivers have some of the files only
            return ""

    def _number(self, path: str) -> int:
        return number_of(self._text(path)) or 0


def irq_names(text: str) -> dict[int, tuple[str, ...]]:
    """Return the names in the *text* of /proc/interrupts by number: those of its handlers, without kind and trigger."""
    head, *lines = text.split("\n")
    columns = head.count("CPU")
    found = {}
    for line in lines:
        number, colon, rest = line.partition(":")
        if colon and number.strip().isdigit():
            names = rest[columns * _COLUMN_CHARACTERS :].rpartition("  ")[2]
            found[int(number)] = tuple(each.strip() for each in names.split(",") if each.strip())
    return found


def _numbers(folder: str) -> CpuSet:
    return frozenset(int(each.name) for each in Path(folder).iterdir() if each.name.isdigit())
