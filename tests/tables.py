"""What the documentation has from the code: ``python -m tests.tables`` renews it, a test checks.

A page has the place for a table of options between ``<!-- options: MODULE.CLASS -->`` (or several classes) and
``<!-- end -->``, for one of annotations after ``<!-- annotations: POLICY -->`` or ``<!-- annotations: KEY KEY -->``,
for the states of a container after ``<!-- states: all -->``,
for a command with what it prints after ``<!-- output: ARGUMENTS -->``, for the help of a program and all its commands
after ``<!-- help: PROGRAM -->``, for the titles of a folder's numbered pages after ``<!-- titles: FOLDER -->``, for a
table of states and events after ``<!-- transitions: MODULE.TABLE -->``, and for a picture of a scenario after
``<!-- picture: FILE CASE PICTURE -->``. Files and folders are named from the root.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from enum import Enum
from importlib import import_module
from pathlib import Path
from textwrap import indent, wrap
from typing import Any

import click
from click.testing import CliRunner
from pydantic import BaseModel

from criproxy.agent.objects.crds import as_yaml, custom_resources
from criproxy.cli import main
from criproxy.config.schema import _properties
from criproxy.config.settings import Common, with_devices
from criproxy.model.workload import ContainerState
from criproxy.placement.options import unheeded
from criproxy.placement.options.annotation_keys import CLASS_KEYS, KEYS
from criproxy.placement.policies import BUILTIN
from criproxy.placement.rules.transitions import LATER_ATTEMPT, TRANSITIONS, Effect
from criproxy.simulate.scenario.vectors import load
from lab.pictures.placement_svg import draw_case
from tests.conftest import ROOT

_KINDS = "options|annotations|states|transitions|output|help|titles|picture"
PLACE = re.compile(rf"(<!-- ({_KINDS}): ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PLURALS = {"a string": "strings", "a number": "numbers", "a mapping": "mappings"}
HELP_COLUMNS = 100
"""Width of the help texts, whatever the terminal has."""
HEAD = "| Option | Value | Default | Meaning |\n|---|---|---|---|\n"


def pages() -> list[Path]:
    """Those that have such a table."""
    return [page for page in sorted((ROOT / "docs").rglob("*.md")) if PLACE.search(page.read_text())]


def definitions() -> Iterator[tuple[Path, str]]:
    """The files in the chart with the definitions of our Kubernetes objects, and what belongs into them."""
    for each in custom_resources():
        name = f"{each['spec']['names']['plural']}.yaml"
        yield ROOT / "deploy/chart/crds" / name, f"# Printed by `criproxy schema --crds`.\n{as_yaml(each)}"


def renewed(text: str) -> str:
    """The page with its tables as the code has them now."""

    def new(found: re.Match[str]) -> str:
        return f"{found[1]}{MADE[found[2]](*found[3].split())}{found[4]}"

    return PLACE.sub(new, text)


def annotations(*named: str) -> str:
    """Links to the annotations of these keys or policies in docs/annotations.md, which has two tables of its own.

    ``all`` makes the one of all annotations, ``ignored`` that of those which no policy acts on.
    """
    if named == ("all",):
        columns = "| Annotation | Value | What it controls | Policies | Allowed by default |\n"
        return columns + "|---|---|---|---|---|\n" + "".join(map(_key_row, KEYS))
    if named == ("ignored",):
        rows = (f"| `{key}` | {reason} |\n" for key, reason in unheeded.ANNOTATIONS.items())
        return "| Annotation | Why it has no effect |\n|---|---|\n" + "".join(rows)
    chosen = (key for key in KEYS if {key, *policies_of(key)} & set(named))
    return ", ".join(f"[`{key}`](../{_page_of(key)})" for key in chosen) + "\n"


def policies_of(key: str) -> Sequence[str]:
    """The names of the policies that read an annotation."""
    return KEYS[key].policies or [name for name in [*BUILTIN][::-1] if name != "none"]


def _page_of(key: str) -> str:
    """Where an annotation is explained, from docs/."""
    return "classes.md#annotations" if key in CLASS_KEYS else f"annotations.md#{anchor(key)}"


def anchor(title: str) -> str:
    """What GitHub makes of a heading, for links to it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _key_row(key: str) -> str:
    known = KEYS[key]
    policies = ", ".join(f"[{policy}](policies/{policy}.md)" for policy in policies_of(key))
    allowed = "no" if known.restricted else "yes"
    page = _page_of(key).removeprefix("annotations.md")
    return f"| [`{key}`]({page}) | {known.value} | {known.meaning} | {policies} | {allowed} |\n"


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


def helps(program: str) -> str:
    """What each command of criproxy prints with ``--help``, subcommands below their group."""
    context = click.Context(main, info_name=program, terminal_width=HELP_COLUMNS, **main.context_settings)
    return "\n" + "\n".join(_help_texts(main, context))


def _help_texts(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"### {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None, f"{name} is listed and is no command"
        if not inner.hidden:
            yield from _help_texts(inner, click.Context(inner, context, info_name=name))


def titles(folder: str) -> str:
    """A line for each numbered page of *folder*: its title, which is a link, and its status."""
    found = sorted((ROOT / folder).glob("[0-9]*.md"))
    return "| Decision | Status |\n|---|---|\n" + "".join(map(_title_row, found))


def _title_row(page: Path) -> str:
    title, _, rest = page.read_text().removeprefix("# ").partition("\n")
    return f"| [{title}]({page.name}) | {rest.strip().splitlines()[0].removeprefix('Status: ')} |\n"


def transitions(path: str) -> str:
    """A row for each state, with the next state after each event, and what both mean."""
    module, _, name = path.rpartition(".")
    states: Mapping[Enum, Mapping[Enum, Enum]] = getattr(import_module(module), name)
    events = list(next(iter(states.values())))
    head = f"| `start` | {' | '.join(event.name for event in events)} |\n|---|{'---|' * len(events)}\n"
    rows = (
        f"| **{state.name}** | {' | '.join('' if after[event] is state else after[event].name for event in events)} |\n"
        for state, after in states.items()
    )
    meanings = (f"* {each.name}: {each.value}.\n" for each in (*states, *events))
    return f"{head}{''.join(rows)}\nIf a cell is empty, the event does not change the state.\n\n{''.join(meanings)}"


def picture(file: str, case: str, target: str) -> str:
    """A link to a picture that lies beside the page; the case's title is for those who cannot see it."""
    (vector,) = load(ROOT / file, [case])
    return f"![{vector.title}]({Path(target).name})\n"


def pictures() -> Iterator[tuple[Path, str]]:
    """Each picture that pages have, and what is drawn there now."""
    for page in pages():
        for kind, words in ((found[2], found[3]) for found in PLACE.finditer(page.read_text())):
            if kind == "picture":
                file, case, target = words.split()
                yield ROOT / target, draw_case(ROOT / file, case)


MADE: Mapping[str, Callable[..., str]] = {
    "options": table,
    "annotations": annotations,
    "states": states,
    "output": output,
    "help": helps,
    "titles": titles,
    "transitions": transitions,
    "picture": picture,
}
"""By the word in the mark, what makes the text after it of the words behind."""


def _own(model: type[BaseModel]) -> Iterator[str]:
    definitions: dict[str, Any] = {}
    properties = _properties(with_devices() if model is Common else model, definitions)
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
    shown = "required" if required else "" if default in (None, "", [], {}) else _code(default)
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
            yield "a string"
        case "integer" | "number":
            yield "a number"
        case "boolean":
            yield "`true`, `false`"
        case "object" if patterns := schema.get("patternProperties"):
            yield f"a mapping; each value is {next(_values(next(iter(patterns.values()))), 'any value')}"
        case "object":
            yield "a mapping"
    if "$ref" in schema:
        yield "a mapping"


def _code(value: object) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


if __name__ == "__main__":
    for each in pages():
        each.write_text(renewed(each.read_text()))
    for target, content in (*pictures(), *definitions()):
        target.write_text(content)
