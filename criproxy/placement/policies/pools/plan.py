"""The pools of a policy file, and which CPUs each has: a function of the file and the machine.

Their sizes, numbers and CPUs have the names of CRI-RM's podpools and static-pools.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from re import IGNORECASE, fullmatch
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.machine.topology import Topology
from criproxy.model.remembered import remembered
from criproxy.model.text.amounts import are
from criproxy.placement.alloc.cpus import take_cpus
from criproxy.placement.options.policy_options import CpuSetOption
from criproxy.placement.options.usable import AS_WRITTEN, Section

RESERVED, DEFAULT = "reserved", "default"
"""The pools that always exist."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of pools or CPUs, or a share of the machine."""

    text: str
    """As in the policy file."""
    number: int
    unit: Literal["", "cpus", "%"] = ""

    def cpus(self, of: int) -> int:
        """How many CPUs this is *of* so many that are not reserved."""
        return of * self.number // 100 if self.unit == "%" else self.number

    def pools(self, of: int, size: int) -> int:
        """How many pools of *size* CPUs this is: those that fit into a share or a number of CPUs, or their number."""
        return self.cpus(of) // max(size, 1) if self.unit else self.number


def _amount(value: object, words: str, example: str) -> Amount:
    if isinstance(value, Amount):
        return value
    text = "" if isinstance(value, bool) else str(value).strip()
    found = fullmatch(rf"([0-9]{{1,4}})\s*({words})?", text, IGNORECASE)
    if not found or not isinstance(value, int | str):
        raise ValueError(f"must be {example}, not {value!r}")
    number, unit = int(found[1]), (found[2] or "").lower()
    if unit == "%" and number > 100:
        raise ValueError(f"{text!r} is more than all CPUs")
    return Amount(text, number, "%" if unit == "%" else "cpus" if unit else "")


def _schema(words: str, *examples: str | int) -> WithJsonSchema:
    pattern = rf"^\s*[0-9]{{1,4}}\s*({words})?\s*$"
    any_of = [{"type": "integer", "minimum": 0, "maximum": 9999}, {"type": "string", "pattern": pattern}]
    return WithJsonSchema({"anyOf": any_of, "examples": list(examples)})


CpuAmount = Annotated[
    Amount,
    BeforeValidator(lambda value: _amount(value, "%", 'a number of CPUs or a share of them such as "50 %"')),
    AS_WRITTEN,
    _schema("%", 2, "50 %"),
]
PoolAmount = Annotated[
    Amount,
    BeforeValidator(lambda value: _amount(value, "%|cpus?", 'a number of pools, or "8 CPUs", or "50 %"')),
    AS_WRITTEN,
    _schema("%|[cC][pP][uU][sS]?", 3, "8 CPUs", "50 %"),
]
PoolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$", max_length=63)]


class CpuList(Section):
    """The CPUs of one pool, one by one."""

    cpuset: CpuSetOption
    """The CPUs of the pool."""
    socket: int | None = None
    """The socket of these CPUs, which `criproxy check` compares with the machine. Optional."""


class Pool(Section):
    """A kind of pools, all of the same size."""

    name: PoolName
    """The name of the pool, for use in annotations. The pools reserved and default exist even if they are not listed
    here."""
    cpu: CpuAmount | None = None
    """The number of CPUs of each of these pools, or a share of the CPUs that are not reserved."""
    cpu_lists: tuple[CpuList, ...] = ()
    """The CPUs of each of these pools; use this option instead of cpu."""
    instances: PoolAmount | None = None
    """How many of these pools there are: a number, or as many as fit into a number of CPUs (8 CPUs) or into a share of
    the CPUs that are not reserved (50 %). By default, one."""
    fill_order: Literal["Balanced", "Packed", "FirstFree"] = "Balanced"
    """Which of these pools the next pod gets: the one with the fewest pods (Balanced), the one with the most (Packed),
    or the first one with room (FirstFree)."""
    max_pods: int = Field(default=0, ge=-1)
    """How many pods each of these pools may have. 0: any number; -1: none."""
    exclusive: bool = False
    """Whether each of these pools is for a single container, as in static-pools."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One pool."""

    name: str
    """Unique, such as ``dualcpu[0]``: what grants call it."""
    kind: Pool
    cpus: CpuSet
    """Never empty but on a machine without CPUs."""


@dataclass(frozen=True)
class Plan:
    """All pools of one machine."""

    topology: Topology
    instances: Sequence[Instance]
    """Kind by kind: the reserved pool, the default one, then in the order of the policy file."""
    shortages: Sequence[tuple[str, str]]
    """By name of the kind, a sentence on what had no room."""

    @cached_property
    def by_kind(self) -> Mapping[str, Sequence[Instance]]:
        """The pools of each kind, in order."""
        kinds: dict[str, list[Instance]] = {}
        for instance in self.instances:
            kinds.setdefault(instance.kind.name, []).append(instance)
        return kinds

    @cached_property
    def by_name(self) -> Mapping[str, Instance]:
        """The pools by their own names."""
        return {instance.name: instance for instance in self.instances}

    @property
    def default(self) -> Instance:
        """The pool of all containers without another."""
        return self.by_kind[DEFAULT][0]


@remembered(4)
def make_plan(pools: Sequence[Pool], reserved: CpuSet, topology: Topology) -> Plan:
    """Give every pool its CPUs.

    Reserved CPUs are the reserved pool's, those in lists belong to their pool, and the others are cut in the order of
    the policy file; what is left is the default pool's. CPUs that the kernel keeps free (isolcpus) are for lists only.

    Args:
        pools: the kinds of pools, in the order of the policy file.
        reserved: the reserved CPUs; those that are not in *topology* do not count.
        topology: the machine, as far as the policy uses it.
    """
    return _Cutting(pools, reserved, topology).plan()


class _Cutting:
    """The work on one plan: which CPUs are free still."""

    def __init__(self, pools: Sequence[Pool], reserved: CpuSet, topology: Topology) -> None:
        self.pools, self.topology = pools, topology
        self.reserved = reserved & topology.cpus
        listed = frozenset[int]().union(*(each.cpuset for pool in pools for each in pool.cpu_lists))
        plain = topology.cpus - self.reserved
        self.base = (plain - topology.isolated_cpus) or plain
        """What shares and numbers of CPUs are of: nothing reserved, nothing isolated."""
        self.free = self.base - listed
        self.shortages: list[tuple[str, str]] = []

    def plan(self) -> Plan:
        by_name = {pool.name: pool for pool in self.pools}
        reserved_first = sorted(self.pools, key=lambda pool: pool.name != RESERVED)
        own = {pool.name: list(self._cpus(pool)) for pool in reserved_first}
        listed, default = (next(iter(own.get(name, ())), NO_CPUS) for name in (RESERVED, DEFAULT))
        reserved = self.reserved or listed
        default = default | self.free or reserved or self._any(own)
        pools = [
            Instance(RESERVED, by_name.get(RESERVED, Pool(name=RESERVED)), reserved or default),
            Instance(DEFAULT, by_name.get(DEFAULT, Pool(name=DEFAULT)), default),
        ]
        pools += [
            Instance(f"{name}[{index}]", by_name[name], cpus)
            for name in by_name
            if name not in (RESERVED, DEFAULT)
            for index, cpus in enumerate(own[name])
        ]
        return Plan(self.topology, pools, self.shortages)

    def _cpus(self, pool: Pool) -> Iterator[CpuSet]:
        """The CPUs of each pool of a kind."""
        if pool.name == RESERVED and self.reserved:
            self._compare(pool)
        elif pool.cpu_lists:
            there = (each.cpuset & (self.topology.cpus - self.reserved) for each in pool.cpu_lists)
            yield from (cpus for cpus in there if cpus)
        elif pool.cpu is not None:
            yield from self._cut(pool, pool.cpu.cpus(len(self.base)))

    def _compare(self, pool: Pool) -> None:
        """The reserved pool has the reserved CPUs: its other options must agree with that."""
        size = pool.cpu.cpus(len(self.base)) if pool.cpu else len(self.reserved)
        listed = pool.cpu_lists[0].cpuset if pool.cpu_lists else self.reserved
        if size != len(self.reserved) or listed != self.reserved:
            text = f"the reserved CPUs are {format_cpuset(self.reserved)}: leave out the size of this pool"
            self.shortages.append((pool.name, text))

    def _cut(self, pool: Pool, size: int) -> Iterator[CpuSet]:
        wanted = pool.instances.pools(len(self.base), size) if pool.instances else 1
        made = 0
        while made < wanted and 0 < size <= len(self.free):
            cpus = cut(self.topology, self.free, size)
            self.free -= cpus
            made += 1
            yield cpus
        # A share of the machine, or a number of CPUs, is at most that much.
        if made < (1 if pool.instances and pool.instances.unit else wanted) or not made:
            self.shortages.append((pool.name, self._shortage(pool, size, wanted, made)))

    def _shortage(self, pool: Pool, size: int, wanted: int, made: int) -> str:
        base, left = len(self.base), len(self.free)
        if not size or not wanted:
            said = pool.cpu if not size else pool.instances
            small = "one CPU" if not size else f"one pool of {size} CPUs"
            return f"there is no room for {pool.name!r}: {said.text if said else 0} of {base} CPUs is less than {small}"
        more = f", and {made} fit" if made else ""
        wants = f"{wanted} pools of {size} CPUs" if wanted > 1 else f"{size} CPUs"
        return f"there is no room for {pool.name!r}: it asks for {wants}, but {left} of {base} {are(left)} left{more}"

    def _any(self, own: dict[str, list[CpuSet]]) -> CpuSet:
        """The default pool if no CPU is left: on all pools that are not for single containers."""
        if DEFAULT not in own and self.pools:
            text = "leaves no CPU for pods that name no pool, and none is reserved: they share the CPUs of other pools"
            self.shortages.append((self.pools[-1].name, text))
        exclusive = [cpus for pool in self.pools if pool.exclusive for cpus in own[pool.name]]
        return self.base.difference(*exclusive) or self.topology.cpus


def cut(topology: Topology, free: CpuSet, count: int) -> CpuSet:
    """*count* of *free* in the first NUMA node that has as many, else the first die, package or the whole machine.

    Of the places of a kind those come first where the part consists of whole cores. What follows in order of number
    stays together, and leaves the rest of the machine in one piece; `take_cpus` would choose the tightest place.

    Raises:
        NotEnough: *free* is smaller than *count*.
    """
    whole = free.difference(*(core.cpus for core in topology.cores if not core.cpus <= free))
    threads = max((len(core.cpus) for core in topology.cores), default=1)
    for parts in (topology.nodes, topology.dies, topology.packages, (topology,)):
        places = [part.cpus for part in parts]
        roomy = [place & free for place in places if len(place & free) >= count]
        tidy = (part for part in roomy if len(part & whole) >= count - count % threads)
        part = next(tidy, roomy[0] if roomy else None)
        if part is not None:
            return take_cpus(topology, part, count)
    raise NotEnough(f"{count} CPUs wanted, {len(free)} free")
