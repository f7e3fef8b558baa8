"""Scenario files as a whole: named machines, and vectors of steps and assertions on them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from criproxy.config.document import parse
from criproxy.config.mistake import Mistake, told
from criproxy.config.words import did_you_mean
from criproxy.errors import UsageError
from criproxy.model.topology import Topology
from criproxy.sim.scenario.assertions import RULES
from criproxy.sim.scenario.expected import ExpectedPools, read_expected_pools
from criproxy.sim.scenario.machine import read_machine, with_closest
from criproxy.sim.scenario.place import At, Wrong
from criproxy.sim.scenario.settings import Configuration
from criproxy.sim.scenario.steps import Reading, Start, Step

FILE_KEYS = ("version", "topologies", "vectors")
UNIT, LIFE = "unit", "life"
VECTOR_KEYS = (
    *("id", "title", "src", "applies", "kind", "note"),
    *("topology", "isolcpus", "pmem_assignment", "policy", "config", "pools_expected", "steps"),
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
    configuration: Configuration | None = None
    """None where the first step starts the policy."""
    steps: tuple[Step, ...] = ()
    pools: ExpectedPools | None = None
    """Of the first policy."""


def load(file: Path, ids: Collection[str] = ()) -> list[Vector]:
    """The vectors of *file*, or those of *ids* in the order of the file.

    Raises:
        UsageError: the file cannot be read or used: a line for each mistake, with its place; or it has no such id.
    """
    vectors, mistakes = read(_text(file), file)
    if mistakes:
        raise UsageError("\n".join(mistake.located(file) for mistake in told(mistakes)))
    known = [vector.id for vector in vectors]
    for wanted in ids:
        if wanted not in known:
            raise UsageError(
                f"{file} has no case {wanted!r}{did_you_mean(wanted, known)}; it has {', '.join(known) or 'none'}"
            )
    return [vector for vector in vectors if not ids or vector.id in ids]


def read(text: str, file: Path) -> tuple[list[Vector], list[Mistake]]:
    """The vectors in *text*, and all that is wrong with it, at most one mistake for each case."""
    document = parse(text, max_values=len(text))
    if document.mistakes:
        return [], document.mistakes
    mistakes: list[Mistake] = []
    vectors: list[Vector] = []
    try:
        fields = At(document, (), document.data).fields(FILE_KEYS, required=("vectors",))
        machines = _machines(fields["topologies"], mistakes) if "topologies" in fields else {}
        for at in fields["vectors"].items():
            vectors += _attempt(at, machines, file, mistakes)
    except Wrong as wrong:
        mistakes.append(wrong.mistake)
    return vectors, mistakes + _twice(vectors)


def _twice(vectors: Iterable[Vector]) -> list[Mistake]:
    first: dict[str, int] = {}
    return [
        Mistake(vector.line, 1, f"a case with the id {vector.id!r} is in line {first[vector.id]} already")
        for vector in vectors
        if first.setdefault(vector.id, vector.line) != vector.line
    ]


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise UsageError(f"{file} has more than {MAX_BYTES >> 20} MiB, too much for scenarios")
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None


def _machines(at: At, mistakes: list[Mistake]) -> dict[str, Topology | None]:
    """By name; None for one that is wrong."""
    machines: dict[str, Topology | None] = {}
    for name, machine in at.entries().items():
        machines[name] = None
        try:
            machines[name] = read_machine(machine)
        except Wrong as wrong:
            mistakes.append(wrong.mistake)
    return machines


def _attempt(at: At, machines: Mapping[str, Topology | None], file: Path, mistakes: list[Mistake]) -> list[Vector]:
    try:
        return [_vector(at, machines, file)]
    except Wrong as wrong:
        mistakes.append(wrong.mistake)
        return []


def _vector(at: At, machines: Mapping[str, Topology | None], file: Path) -> Vector:
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
        configuration=None if begins else Configuration(policy, fields.get("config"), at, file),
        steps=steps,
        pools=read_expected_pools(fields["pools_expected"]) if "pools_expected" in fields else None,
    )


def _topology(fields: Mapping[str, At], machines: Mapping[str, Topology | None]) -> Topology | None:
    at = fields["topology"]
    topology = read_machine(at) if isinstance(at.data, dict) else None
    if topology is None:
        name = at.text()
        if name not in machines:
            raise at.wrong(f"there is no topology {name!r}{did_you_mean(name, machines)}")
        topology = machines[name]
    if topology is not None and "isolcpus" in fields:
        topology = replace(topology, isolated_cpus=fields["isolcpus"].cpuset() & topology.online_cpus)
    if topology is not None and "pmem_assignment" in fields:
        nearest = fields["pmem_assignment"].entries().values()
        topology = with_closest(topology, {each.key_number("a NUMA node"): each.number() for each in nearest})
    return topology
