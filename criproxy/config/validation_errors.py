"""pydantic's errors → mistakes with a place, in words for the authors of policy files."""

from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from criproxy.config.document import Document
from criproxy.config.mistakes import Mistake, did_you_mean, shown
from criproxy.config.predecessors import about_option

_MUST = {
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    **dict.fromkeys(
        ("dict_type", "model_attributes_type", "model_type"), "a group of options, indented on the lines below"
    ),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    **dict.fromkeys(("int_from_float", "int_parsing", "int_type"), "a whole number"),
    "int_parsing_size": "a smaller whole number",
    **dict.fromkeys(("list_type", "tuple_type"), "a list, such as [a, b]"),
    "string_type": "text",
}
"""Kind of complaint → what the value must be."""

Location = tuple[str | int, ...]


def explain(detail: ErrorDetails, model: type[BaseModel], document: Document, also: Iterable[str] = ()) -> Mistake:
    """The mistake that *detail* is; *also* are names that are valid beside those of *model* on its top level."""
    kind = detail["type"]
    path = _in_document(detail["loc"], document, keep_last=kind in {"missing", "extra_forbidden"})
    name = dotted(path)
    place = document.place(path, of_key=kind == "extra_forbidden")
    if kind == "extra_forbidden":
        valid = [*also, *names_of(model)] if len(path) == 1 else names_of(model_at(model, path[:-1]))
        hint = (about_option(name) if len(path) == 1 else "") or did_you_mean(str(path[-1]), valid)
        hint = hint or _elsewhere(model, path)
        return Mistake(*place, f"unknown option {name!r}{hint}")
    if kind == "missing":
        return Mistake(*place, f"the option {name!r} is missing")
    return Mistake(*place, f"{name}: {complaint(detail)}")


def complaint(detail: ErrorDetails) -> str:
    """What is wrong with a value, without its name."""
    kind, value = detail["type"], detail["input"]
    if value is None:
        return "has no value: give one, or leave the line out"
    if kind in {"value_error", "assertion_error"}:
        return detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f"must be text, not {shown(value)}; in quotes it is text"
    if kind == "too_short":
        least, count = detail["ctx"]["min_length"], detail["ctx"]["actual_length"]
        return f"must have at least {least} {'entry' if least == 1 else 'entries'}, not {count}"
    must = f"must be {_MUST[kind]}" if kind in _MUST else detail["msg"].replace("Input should", "must")
    expected = detail.get("ctx", {}).get("expected") if kind in {"literal_error", "enum"} else None
    options = [word.strip("'") for word in str(expected or "").replace(" or ", ", ").split(", ")]
    return f"{must}, not {shown(value)}{did_you_mean(str(value), options) if expected else ''}"


def _in_document(location: Location, document: Document, *, keep_last: bool) -> Location:
    """*location* without what pydantic adds for its own bookkeeping, such as the branch of a union."""
    path: Location = ()
    for position, part in enumerate(location):
        if (*path, part) in document.values or (keep_last and position == len(location) - 1):
            path = (*path, part)
    return path


def dotted(path: Location) -> str:
    """``pools[0].cpus``: list indexes count from 0."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def names_of(model: type[BaseModel] | None) -> list[str]:
    """The names of the options of *model*, as in a policy file."""
    return [field.alias or name for name, field in model.model_fields.items()] if model is not None else []


def _elsewhere(model: type[BaseModel], path: Location) -> str:
    """``; did you mean 'classes.a.cpu.weight'?`` if a group in, beside or around that of *path* has such an option."""
    for depth in range(len(path) - 1, -1, -1):
        group = path[:depth]
        places = [group, *((*group, name) for name in names_of(model_at(model, group)))]
        if found := [each for each in places if path[-1] in names_of(model_at(model, each))]:
            return f"; did you mean {' or '.join(repr(dotted((*each, path[-1]))) for each in found)}?"
    return ""


def model_at(model: type[BaseModel] | None, path: Location) -> type[BaseModel] | None:
    """The model of the options in the group at *path*, if there is one."""
    if not path or model is None:
        return model
    for name, field in model.model_fields.items():
        if (field.alias or name) == path[0]:
            rest = path[1:]
            while rest and isinstance(rest[0], int):
                rest = rest[1:]
            return model_at(_model_in(field.annotation), rest)
    # A mapping from names that users choose: the next part is such a name.
    return model_at(model, path[1:])


def _model_in(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401 (annotations are anything)
    """The first model in an annotation such as ``dict[str, Pool] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
