"""Options that every policy has, and the types that options are made of. Each policy's own are in its file."""

from collections.abc import Iterator
from difflib import get_close_matches
from re import fullmatch
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from criproxy.model.cpuset import MAX_ID, CpuSet, format_cpuset, parse_cpuset
from criproxy.model.topology import Topology
from criproxy.policy.keys import KEYS, matches_any


def _to_cpuset(value: object) -> CpuSet:
    """A set as a text in kernel notation, one number, or a list of numbers."""
    if isinstance(value, frozenset):
        return value
    if isinstance(value, str):
        return parse_cpuset(value)
    numbers = value if isinstance(value, list) else [value]
    if any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError('must be CPUs such as "0-3,8"')
    return parse_cpuset(",".join(map(str, numbers)))


_ID = {"type": "integer", "minimum": 0, "maximum": MAX_ID}
_CPUSET_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": r"^\s*([0-9]+\s*(-\s*[0-9]+\s*)?(,\s*[0-9]+\s*(-\s*[0-9]+\s*)?)*)?$"},
        _ID,
        {"type": "array", "items": _ID},
    ],
    "examples": ["0", "0-3", "0-1,64-65"],
}

CpuSetOption = Annotated[
    CpuSet, BeforeValidator(_to_cpuset), PlainSerializer(format_cpuset), WithJsonSchema(_CPUSET_SCHEMA)
]
"""CPUs in a policy file."""


class Misfit(NamedTuple):
    """Something that options ask of a machine and the machine has not."""

    path: tuple[str | int, ...]
    """Names, as in the policy file, and indexes that lead to the option."""
    text: str
    """What is wrong, and what would be right."""


def _checked_key(pattern: str) -> str:
    if not matches_any(pattern):
        near = get_close_matches(pattern, KEYS, n=1)
        mean = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(KEYS)}"
        raise ValueError(f"no policy reads an annotation {pattern!r}{mean}")
    return pattern


_NAMESPACES = "[a-z0-9*?-]+"


def _checked_namespace(pattern: str) -> str:
    if not fullmatch(_NAMESPACES, pattern):
        raise ValueError("must be a namespace (a-z, 0-9 and -), in which * and ? stand for anything")
    return pattern


NamespacePattern = Annotated[
    str, AfterValidator(_checked_namespace), WithJsonSchema({"type": "string", "pattern": f"^{_NAMESPACES}$"})
]
"""Namespaces in a policy file."""
KeyPattern = Annotated[str, AfterValidator(_checked_key), WithJsonSchema({"type": "string", "examples": ["*", *KEYS]})]
"""Keys of annotations in a policy file."""


class AnnotationOptions(BaseModel):
    """What workload owners may say."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    allow: dict[NamespacePattern, tuple[KeyPattern, ...]] = Field(default_factory=dict)
    """By namespace (* and ? stand for anything): the annotations that its pods may use, without domain and scope; * is
    all of them. Others are ignored. Where nothing is said, all but prefer-reserved-cpus may be used everywhere."""


class Options(BaseModel):
    """Options of any policy; a policy with more of them derives from this."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, allow_inf_nan=False)

    reserved_cpus: CpuSetOption = frozenset()
    """CPUs that no container owns: they stay with those that share, and keep the node itself alive."""

    annotations: AnnotationOptions = AnnotationOptions()
    """Who may use which annotations."""
    rules: Literal["nri", "crirm"] = "nri"
    """Whose rules decide where nri-plugins and CRI-RM differ."""

    def misfits(self, topology: Topology) -> Iterator[Misfit]:
        """What these options ask that the machine *topology* has not; a policy with more options adds its own."""
        path = ("reservedCpus",)
        yield from missing_cpus(path, self.reserved_cpus, topology)
        if topology.cpus and self.reserved_cpus >= topology.cpus:
            text = f"reserves every CPU that pods may use ({format_cpuset(topology.cpus)}): leave at least one"
            yield Misfit(path, text)


def missing_cpus(path: tuple[str | int, ...], cpus: CpuSet, topology: Topology) -> Iterator[Misfit]:
    """Those of *cpus* that the machine has not, and those that its pods must not use."""
    if absent := cpus - topology.online_cpus:
        online = format_cpuset(topology.online_cpus)
        yield Misfit(path, f"{_counted(absent)} not online in this machine, which has {online}")
    if forbidden := (cpus & topology.online_cpus) - topology.cpus:
        allowed = format_cpuset(topology.cpus)
        yield Misfit(path, f"{_counted(forbidden)} not for pods: their cgroup allows {allowed}")


def _counted(cpus: CpuSet) -> str:
    return f"CPU {format_cpuset(cpus)} is" if len(cpus) == 1 else f"CPUs {format_cpuset(cpus)} are"
