"""Scenario files as a whole: named machines, and vectors of steps and assertions on them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from criproxy.config.document import parse
from criproxy.config.mistakes import Mistake, did_you_mean, reported
from criproxy.errors import UsageError
from criproxy.model.machine.hardware import HugePages
from criproxy.model.machine.topology import Topology
from criproxy.simulate.scenario.assertions import RULES
from criproxy.simulate.scenario.machine import read_machine, with_closest
from criproxy.simulate.scenario.place import At, ExpectedPools, Wrong, read_expected_pools, read_text
from criproxy.simulate.scenario.pods import page_size
from criproxy.simulate.scenario.settings import Configuration
from criproxy.simulate.scenario.steps import Reading, Start, Step

FILE_KEYS = ("version", "topologies", "vectors")
UNIT, LIFE = "unit", "life"
VECTOR_KEYS = (
    *("id", "title", "src", "applies", "kind", "note"),
    *("topology", "isolcpus", "pmem_assignment", "hugepages", "policy", "config", "pools_expected", "steps"),
)
MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Vector:
    """One case: a machine, a policy and what happens."""

    id: str
    title: str
    line: int
    unit: bool
    """Whether it is about a single function, and so is for tests only; then it has nothing of what follows."""
    rules: tuple[str, ...]
    """Of ``crirm`` and ``nri``: it is run once by each."""
    topology: Topology | None = None
    huge_pages: tuple[HugePages, ...] = ()
    """Of the machine; all are free."""
    configuration: Configuration | None = None
    """None where the first step starts the policy."""
    steps: tuple[Step, ...] = ()
    pools: ExpectedPools | None = None
    """Of the first policy."""


@dataclass(slots=True)
class Contents:
    """What is in a file."""

    vectors: list[Vector] = field(default_factory=list)
    """Those that can be run, in the order of the file."""
    mistakes: list[Mistake] = field(default_factory=list)
    """What is wrong with the file beside its cases."""
    wrong: dict[str, Mistake] = field(default_factory=dict)
    """What is wrong with each of the other cases, by id."""

    @property
    def all_mistakes(self) -> list[Mistake]:
        """Each once, in the order of the file."""
        return reported([*self.mistakes, *self.wrong.values()])


def load(file: Path, ids: Collection[str] = ()) -> list[Vector]:
    """The vectors of *file*, or those of *ids* in the order of the file.

    Raises:
        UsageError: the file cannot be read, or any of these cases be run: a line for each mistake, with its place.
    """
    contents = examine(file, ids)
    if mistakes := contents.all_mistakes:
        raise UsageError("\n".join(mistake.located(file) for mistake in mistakes))
    return contents.vectors


def examine(file: Path, ids: Collection[str] = ()) -> Contents:
    """What is in *file*, or that part of it which is about *ids*; one wrong case does not hide the others.

    Raises:
        UsageError: the file cannot be read, or has no such case.
    """
    contents = read(read_text(file, MAX_BYTES, "a scenario file (YAML, docs/simulate.md)"), file)
    if not ids:
        return contents
    known = [*(vector.id for vector in contents.vectors), *contents.wrong]
    for wanted in ids:
        if wanted not in known:
            near = did_you_mean(wanted, known)
            raise UsageError(f"{file} has no case {wanted!r}{near}; it has {', '.join(known) or 'none'}")
    chosen = [vector for vector in contents.vectors if vector.id in ids]
    return Contents(chosen, [], {name: wrong for name, wrong in contents.wrong.items() if name in ids})


def read(text: str, file: Path) -> Contents:
    """What is in *text*, which is that of *file*; at most one mistake for each case."""
    document = parse(text, max_values=len(text))
    contents = Contents(mistakes=document.mistakes)
    if document.mistakes:
        return contents
    try:
        whole = At(document, (), document.data)
        fields = whole.entries()
        contents.mistakes += whole.unknown(FILE_KEYS)
        if "vectors" not in fields:
            raise whole.wrong("'vectors' is missing")
        machines = _machines(fields["topologies"]) if "topologies" in fields else {}
        contents.mistakes += [machine for machine in machines.values() if isinstance(machine, Mistake)]
        for at in fields["vectors"].items():
            _add(contents, at, machines, file)
    except Wrong as wrong:
        contents.mistakes.append(wrong.mistake)
    contents.mistakes += _twice(contents.vectors)
    return contents


def _twice(vectors: Iterable[Vector]) -> list[Mistake]:
    first: dict[str, int] = {}
    return [
        Mistake(vector.line, 1, f"a case with the id {vector.id!r} is in line {first[vector.id]} already")
        for vector in vectors
        if first.setdefault(vector.id, vector.line) != vector.line
    ]


def _machines(at: At) -> dict[str, Topology | Mistake]:
    """By name: a machine, or what is wrong with it."""
    machines: dict[str, Topology | Mistake] = {}
    for name, machine in at.entries().items():
        try:
            machines[name] = read_machine(machine)
        except Wrong as wrong:
            machines[name] = wrong.mistake
    return machines


def _add(contents: Contents, at: At, machines: Mapping[str, Topology | Mistake], file: Path) -> None:
    try:
        contents.vectors.append(_vector(at, machines, file))
    except Wrong as wrong:
        name = at.data.get("id") if isinstance(at.data, dict) else None
        if name is None:
            contents.mistakes.append(wrong.mistake)
        else:
            contents.wrong[str(name)] = wrong.mistake


def _vector(at: At, machines: Mapping[str, Topology | Mistake], file: Path) -> Vector:
    fields = at.entries()
    if "id" not in fields:
        raise at.wrong("'id' is missing")
    applies = tuple(item.one_of(RULES) for item in fields["applies"].items()) if "applies" in fields else RULES[1:]
    title = fields["title"].text() if "title" in fields else ""
    vector = Vector(fields["id"].text(), title, at.line, unit=False, rules=applies)
    if "kind" in fields and fields["kind"].one_of((UNIT, LIFE)) == UNIT:
        return replace(vector, unit=True)  # its other entries are those of its function
    at.fields(VECTOR_KEYS, required=("topology", "policy", "steps"))
    policy = fields["policy"].text()
    steps = tuple(Reading(policy, file).steps(fields["steps"]))
    begins = bool(steps) and isinstance(steps[0].action, Start) and not steps[0].only
    return replace(
        vector,
        topology=_topology(fields, machines),
        huge_pages=tuple(_huge_pages(fields["hugepages"])) if "hugepages" in fields else (),
        configuration=None if begins else Configuration(policy, fields.get("config"), at, file),
        steps=steps,
        pools=read_expected_pools(fields["pools_expected"]) if "pools_expected" in fields else None,
    )


def _topology(fields: Mapping[str, At], machines: Mapping[str, Topology | Mistake]) -> Topology:
    topology = _named(fields["topology"], machines)
    if "isolcpus" in fields:
        topology = replace(topology, isolated_cpus=fields["isolcpus"].cpuset() & topology.online_cpus)
    if "pmem_assignment" in fields:
        nearest = fields["pmem_assignment"].entries().values()
        topology = with_closest(topology, {each.key_number("a NUMA node"): each.number() for each in nearest})
    return topology


def _huge_pages(at: At) -> Iterator[HugePages]:
    """Those of each NUMA node, by the size of a page."""
    for node in at.entries().values():
        for each in node.entries().values():
            yield HugePages(node.key_number("a NUMA node"), page_size(each), each.number(), each.number())


def _named(at: At, machines: Mapping[str, Topology | Mistake]) -> Topology:
    """The machine that is described there, or that has this name."""
    if isinstance(at.data, dict):
        return read_machine(at)
    name = at.text()
    if name not in machines:
        raise at.wrong(f"there is no topology {name!r}{did_you_mean(name, machines)}")
    machine = machines[name]
    if isinstance(machine, Mistake):
        raise Wrong(machine)
    return machine
