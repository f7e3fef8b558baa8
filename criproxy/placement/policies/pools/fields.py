"""The pools of a policy file: their sizes, numbers and CPUs, with their names in CRI-RM's podpools and static-pools."""

from dataclasses import dataclass
from re import IGNORECASE, fullmatch
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from criproxy.placement.options.policy_options import CpuSetOption

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


_AS_WRITTEN = PlainSerializer(lambda value: value.text, return_type=str)
CpuAmount = Annotated[
    Amount,
    BeforeValidator(lambda value: _amount(value, "%", 'a number of CPUs or a share of them such as "50 %"')),
    _AS_WRITTEN,
    _schema("%", 2, "50 %"),
]
PoolAmount = Annotated[
    Amount,
    BeforeValidator(lambda value: _amount(value, "%|cpus?", 'a number of pools, or "8 CPUs", or "50 %"')),
    _AS_WRITTEN,
    _schema("%|[cC][pP][uU][sS]?", 3, "8 CPUs", "50 %"),
]
PoolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$", max_length=63)]


class CpuList(BaseModel):
    """The CPUs of one pool, one by one."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    cpuset: CpuSetOption
    """The CPUs of the pool."""
    socket: int | None = None
    """The socket of these CPUs, which `criproxy check` compares with the machine. Optional."""


class Pool(BaseModel):
    """A kind of pools, all of the same size."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

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
