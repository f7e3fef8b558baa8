"""Options that every policy has, and the types that options are made of. Each policy's own are in its file."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset


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


CpuSetOption = Annotated[
    CpuSet,
    BeforeValidator(_to_cpuset),
    PlainSerializer(format_cpuset),
    WithJsonSchema({"type": ["string", "integer", "array"], "items": {"type": "integer"}, "examples": ["0-1,8"]}),
]
"""CPUs in a policy file."""


class Options(BaseModel):
    """Options of any policy; a policy with more of them derives from this."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    reserved_cpus: CpuSetOption = frozenset()
    """Never granted exclusively: they stay with the shared pool and keep the node itself alive."""
