"""What the documentation has from the code: ``python -m tests.tables`` renews it, a test checks.

A page has the place for a table of options between ``<!-- options: MODULE.CLASS -->`` (or several classes) and
``<!-- end -->``, for one of annotations after ``<!-- annotations: POLICY -->`` or ``<!-- annotations: KEY KEY -->``,
for the states of a container after ``<!-- states: all -->``, for a command with what it prints after
``<!-- output: ARGUMENTS -->``, and for a picture of a scenario after
``<!-- picture: FILE CASE PICTURE -->``, whose names are those from the root.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent, wrap
from typing import Any

from click.testing import CliRunner
from pydantic import BaseModel

from criproxy.cli import main
from criproxy.config.schema import _properties
from criproxy.engine.transitions import LATER_ATTEMPT, TRANSITIONS, Effect
from criproxy.model.workload import ContainerState
from criproxy.policy.keys import KEYS
from criproxy.simulate.scenario.vectors import load
from tests.conftest import ROOT

PLACE = re.compile(r"(<!-- (options|annotations|states|output|picture): ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PLURALS = {"text": "texts", "a number": "numbers", "a group": "groups"}
HEAD = "| Option | Value | Default | Meaning |\n|---|---|---|---|\n"


def pages() -> list[Path]:
    """Those that have such a table."""
    return [page for page in sorted((ROOT / "docs").rglob("*.md")) if PLACE.search(page.read_text())]


def renewed(text: str) -> str:
    """The page with its tables as the code has them now."""

    def new(found: re.Match[str]) -> str:
        return f"{found[1]}{MADE[found[2]](*found[3].split())}{found[4]}"

    return PLACE.sub(new, text)


def annotations(*named: str) -> str:
    """The annotations of these keys, or that the policy of this name reads."""
    rows = (
        f"| `{key}` | {known.value} | {known.meaning} |\n"
        for key, known in KEYS.items()
        if {key, *known.policies} & set(named)
    )
    return "| Annotation | Value | Meaning |\n|---|---|---|\n" + "".join(rows)


def table(*models: str) -> str:
    """The options that each class has and what it derives from has not, or says something else about."""
    return HEAD + "".join(row for model in models for row in _own(_model(model)))


def states(_: str) -> str:
    """What each event does to a container, by its state."""
    later = "`ContainerCreating` of a later attempt", LATER_ATTEMPT
    rows = [*((f"`{kind.__name__}`", row) for kind, row in TRANSITIONS.items()), later]
    cells = ((name, *(_cell(row[state]) for state in ContainerState)) for name, row in rows)
    head = ["Event", *(state.value for state in ContainerState)], ["---"] * (1 + len(ContainerState))
    return "".join(f"| {' | '.join(row)} |\n" for row in (*head, *cells))


def _cell(cell: ContainerState | Effect) -> str:
    return f"**{cell.value}**" if isinstance(cell, ContainerState) else cell.value


def output(*arguments: str) -> str:
    """What a user types, and below it what criproxy prints."""
    with chdir(ROOT):
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert not result.exit_code, result.output
    typed = wrap(shlex.join(["criproxy", *arguments]), 130, break_long_words=False, break_on_hyphens=False)
    lines = [" \\\n    ".join(typed), "", *result.stdout.splitlines()]
    return "\n" + indent("\n".join(lines), "    ") + "\n\n"


def picture(file: str, case: str, target: str) -> str:
    """A link to a picture that lies beside the page; the case's title is for those who cannot see it."""
    (vector,) = load(ROOT / file, [case])
    return f"![{vector.title}]({Path(target).name})\n"


def pictures() -> Iterator[tuple[Path, str]]:
    """Each picture that pages have, and what `criproxy simulate` draws there now."""
    for page in pages():
        for kind, words in ((found[2], found[3]) for found in PLACE.finditer(page.read_text())):
            if kind == "picture":
                file, case, target = words.split()
                with TemporaryDirectory() as folder:
                    output("simulate", file, case, "--svg", folder)
                    yield ROOT / target, Path(folder, f"{case}.svg").read_text()


MADE: Mapping[str, Callable[..., str]] = {
    "options": table,
    "annotations": annotations,
    "states": states,
    "output": output,
    "picture": picture,
}
"""By the word in the mark, what makes the text after it of the words behind."""


def _own(model: type[BaseModel]) -> Iterator[str]:
    definitions: dict[str, Any] = {}
    properties = _properties(model, definitions)
    for name in model.__annotations__:
        if name in model.model_fields:
            option = model.model_fields[name].alias or name
            schema = _resolved(properties[option], definitions)
            yield from _rows(option, schema, definitions, required=model.model_fields[name].is_required())


def _rows(name: str, schema: dict[str, Any], definitions: dict[str, Any], *, required: bool) -> Iterator[str]:
    """That of an option, or of each option in the group that it is."""
    group = definitions.get(str(schema.get("$ref")).rpartition("/")[2])
    if group is None:
        yield _row(name, schema, required=required)
        return
    for inner, each in group["properties"].items():
        needed = inner in group.get("required", ())
        yield from _rows(f"{name}.{inner}", _resolved(each, definitions), definitions, required=needed)


def _resolved(schema: Any, definitions: dict[str, Any]) -> Any:  # noqa: ANN401
    """*schema* with lists of words that are defined elsewhere in their place; groups stay names."""
    match schema:
        case {"$ref": str(name)} if "enum" in (found := definitions[name.rpartition("/")[2]]):
            return found
        case dict():
            return {key: _resolved(value, definitions) for key, value in schema.items()}
        case list():
            return [_resolved(value, definitions) for value in schema]
    return schema


def _model(path: str) -> type[BaseModel]:
    module, _, name = path.rpartition(".")
    model: type[BaseModel] = getattr(import_module(module), name)
    return model


def _row(name: str, schema: dict[str, Any], *, required: bool) -> str:
    default = schema.get("default")
    shown = "must be given" if required else "" if default in (None, "", [], {}) else _code(default)
    value = " or ".join(dict.fromkeys(_values(schema))).replace("|", "\\|")
    return f"| `{name}` | {value} | {shown} | {schema.get('description', '').replace('|', chr(92) + '|')} |\n"


def _values(schema: dict[str, Any]) -> Iterator[str]:
    """What a value may be, in words."""
    if "examples" in schema:
        yield f"such as {', '.join(map(_code, schema['examples']))}"
        return
    if "enum" in schema:
        yield ", ".join(f"`{value}`" for value in schema["enum"])
    for part in schema.get("anyOf", []):
        yield from _values(part)
    match schema.get("type"):
        case "array":
            word = next(_values({key: value for key, value in schema["items"].items() if key != "examples"}), "values")
            yield f"a list of {_PLURALS.get(word, word)}"
        case "string" if "enum" not in schema:
            yield "text"
        case "integer" | "number":
            yield "a number"
        case "boolean":
            yield "`true`, `false`"
        case "object" if patterns := schema.get("patternProperties"):
            yield f"for each name {next(_values(next(iter(patterns.values()))), 'a value')}"
        case "object":
            yield "a group"
    if "$ref" in schema:
        yield "a group"


def _code(value: object) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


if __name__ == "__main__":
    for each in pages():
        each.write_text(renewed(each.read_text()))
    for target, drawn in pictures():
        target.write_text(drawn)
