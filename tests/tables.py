"""Tables of options in the documentation, made from the code: ``python -m tests.tables`` renews them, a test checks.

A page has the place for one between ``<!-- options: MODULE.CLASS -->`` and ``<!-- end -->``, and for one of annotations
after ``<!-- annotations: POLICY -->``.
"""

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from criproxy.config.schema import _properties
from criproxy.policy.keys import KEYS
from tests.conftest import ROOT

PLACE = re.compile(r"(<!-- (options|annotations): (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PLURALS = {"text": "texts", "a number": "numbers", "a group": "groups"}
HEAD = "| Option | Value | Default | Meaning |\n|---|---|---|---|\n"


def pages() -> list[Path]:
    """Those that have such a table."""
    return [page for page in sorted((ROOT / "docs").rglob("*.md")) if PLACE.search(page.read_text())]


def renewed(text: str) -> str:
    """The page with its tables as the code has them now."""

    def new(found: re.Match[str]) -> str:
        rows = table(_model(found[3])) if found[2] == "options" else annotations(found[3])
        return f"{found[1]}{rows}{found[4]}"

    return PLACE.sub(new, text)


def annotations(policy: str) -> str:
    """The annotations that a policy reads."""
    rows = (
        f"| `{key}` | {known.value} | {known.meaning} |\n" for key, known in KEYS.items() if policy in known.policies
    )
    return "| Annotation | Value | Meaning |\n|---|---|---|\n" + "".join(rows)


def table(model: type[BaseModel]) -> str:
    """The options that *model* has and what it derives from has not, or says something else about."""
    definitions: dict[str, Any] = {}
    properties = _properties(model, definitions)
    own = [model.model_fields[name].alias or name for name in model.__annotations__ if name in model.model_fields]
    return HEAD + "".join(_row(name, _resolved(properties[name], definitions)) for name in own)


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


def _row(name: str, schema: dict[str, Any]) -> str:
    default = schema.get("default")
    shown = "must be given" if "default" not in schema else "" if default in (None, "", [], {}) else _code(default)
    value = " or ".join(dict.fromkeys(_values(schema))).replace("|", "\\|")
    return f"| `{name}` | {value} | {shown} | {schema.get('description', '').replace('|', chr(92) + '|')} |\n"


def _values(schema: dict[str, Any]) -> Iterator[str]:
    """What a value may be, in words."""
    if "enum" in schema:
        yield ", ".join(f"`{value}`" for value in schema["enum"])
    for part in schema.get("anyOf", []):
        yield from _values(part)
    match schema.get("type"):
        case "array":
            word = next(_values(schema["items"]), "values")
            yield f"a list of {_PLURALS.get(word, word)}"
        case "string" if "enum" not in schema:
            yield "text"
        case "integer" | "number":
            yield "a number"
        case "boolean":
            yield "`true`, `false`"
        case "object":
            yield "a group"
    if "$ref" in schema:
        yield "a group"


def _code(value: object) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


if __name__ == "__main__":
    for each in pages():
        each.write_text(renewed(each.read_text()))
