"""The types of strings in the section ``devices`` of a policy file, with the messages about invalid ones."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from difflib import get_close_matches
from posixpath import normpath
from re import fullmatch
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from criproxy.devices.classes.device_class import PLACEHOLDER
from criproxy.placement.options.policy_options import Misfit, Path

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Plain = TypeVar("Plain", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class Text:
    """A string that must match a pattern as a whole."""

    pattern: str
    meaning: str
    unit: str = ""
    """What most likely belongs behind a bare number."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        """Return the schema of the string, with the check."""
        checked = core_schema.no_info_after_validator_function(self._check, handler(source))
        return core_schema.no_info_before_validator_function(self._with_unit, checked) if self.unit else checked

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema of the string, with the pattern."""
        return handler(schema) | {"pattern": f"^({self.pattern})$"}

    def _with_unit(self, value: object) -> object:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and fullmatch(self.pattern, meant := f"{value}{self.unit}"):
            raise ValueError(f"must be {self.meaning}, not {value}; did you mean {meant}?")
        return value

    def _check(self, value: str) -> str:
        if not fullmatch(self.pattern, value):
            raise ValueError(f"must be {self.meaning}, not {value!r:.60}")
        return value


def _card_node(path: str) -> str:
    if len(PLACEHOLDER.findall(path)) != 1:
        raise ValueError(f"must contain the card's number once, as in /dev/npu{{index}}, not {path!r:.60}")
    return path


def _plain_path(path: str) -> str:
    if normpath(path) != path:
        raise ValueError(f"must be a path below /dev/ without '.', '..' and '//', not {path!r:.60}")
    return path


def _extended_resource(name: str) -> str:
    domain = name.partition("/")[0]
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or name.startswith("requests."):
        raise ValueError(f"the kubelet accepts no resource {name!r:.60} from a plugin: use the domain of a vendor")
    return name


def near(name: str, names: Iterable[str]) -> str:
    """Return the end of a message about a *name* that is none of *names*: what was probably meant; else empty."""
    found = get_close_matches(name, list(names), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def class_mistakes(path: Path, kind: str, seen: set[str], offered: Collection[str], twice: str) -> Iterator[Misfit]:
    """Yield what is wrong with the name of a class in a list, of which *seen* has the previous ones."""
    if kind in seen:
        yield Misfit(path, f"the class {kind!r} {twice}")
    elif kind not in offered:
        yield Misfit(path, f"the class {kind!r} is not in advertise{near(kind, offered)}")
    seen.add(kind)


class Section(BaseModel):
    """A mapping in the section."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    def plain(self, kind: type[Plain], **others: Any) -> Plain:  # noqa: ANN401 (of any field)
        """Convert to plain values: the options that *kind* has by the same names, and the *others*."""
        names = {each.name for each in fields(kind)} & type(self).model_fields.keys()
        return kind(**{name: getattr(self, name) for name in names} | others)


class NamedSection(Section):
    """A mapping that may also be written as the value of its first key alone."""

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any] | str:
        """Serialize only what the file sets: the defaults here are not always the effective values."""
        fields = type(self).model_fields
        if self.model_fields_set == {first := next(iter(fields))}:
            return str(getattr(self, first))
        given = {fields[name].alias or name for name in self.model_fields_set}
        return {name: value for name, value in handler(self).items() if name in given}


def or_word(key: str, kinds: Any) -> BeforeValidator:  # noqa: ANN401 (any type)
    """Let a mapping be written as the value of its first *key* alone; *kinds* is what the JSON schema allows."""
    return BeforeValidator(
        lambda value: {key: value} if isinstance(value, str) else value, json_schema_input_type=kinds
    )


_WORD = "[A-Za-z0-9][A-Za-z0-9_.-]*"
ClassName = Annotated[str, Text("[a-z0-9][a-z0-9.-]{0,62}", "a name of a-z, 0-9, '-' and '.'")]
ResourcePattern = Annotated[
    str, Text(r"[a-z0-9.*?-]+/[A-Za-z0-9._*?-]+", "a resource such as vendor.com/gpu, with * and ? as wildcards")
]
EnvName = Annotated[str, Text("([A-Za-z_][A-Za-z0-9_]*)?", "the name of an environment variable")]
EnvPattern = Annotated[
    str, Text(r"[A-Za-z_][A-Za-z0-9_]*\*?", "the name of an environment variable, or its beginning and *")
]
HideValue = Annotated[str, Text("[!-~]*", "a word without spaces")]
NodePath = Annotated[str, Text(r"/dev/[^/\s][^\s]*", "a path below /dev/"), AfterValidator(_plain_path)]
CardNodePath = Annotated[NodePath, AfterValidator(_card_node)]
MountPrefix = Annotated[str, Text(r"/[^\s]*[^/\s]", "an absolute path without '/' at its end")]
FilePath = Annotated[str, Text(r"/[^\s]*[^/\s]", "the absolute path of a file")]
HostPath = Annotated[str, Text(r"(/[^\s]*[^/\s])?", 'an absolute path, or "" to leave it out')]
Wait = Annotated[
    str, Text(r"1s|0?\.[0-9]{1,3}s|[1-9][0-9]{0,2}ms|1000ms", "a time of at most one second, such as 1s or 500ms")
]
CdiKind = Annotated[str, Text(f"{_WORD}/{_WORD}", "a kind of CDI devices, such as vendor.com/gpu")]
_RESOURCE = Text(
    r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
    "a resource such as vendor.com/gpu: a domain, '/', and a name of at most 63 characters",
)
ResourceName = Annotated[str, _RESOURCE, AfterValidator(_extended_resource)]
Duration = Annotated[str, Text(r"(0|[1-9][0-9]{0,6})(ms|s|m|h)", "a time such as 30s, 5m or 500ms", "s")]
Period = Annotated[str, Text(r"[1-9][0-9]{0,6}(ms|s|m|h)", "a time such as 30s, 5m or 500ms, and not 0", "s")]


def seconds(duration: str) -> float:
    """Convert a `Duration`, `Period` or `Wait` to seconds."""
    number = duration.rstrip("hms")
    return float(number) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[duration[len(number) :]]
