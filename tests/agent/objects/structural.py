"""What the API server does with the schema of a CustomResourceDefinition: its rules, and the check of objects."""

import re
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft7Validator

Schema = dict[str, Any]
PRESERVE, INT_OR_STRING = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"
_ALLOWED = {
    *("type", "description", "properties", "additionalProperties", "items", "required", "enum", "pattern"),
    *("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", PRESERVE, INT_OR_STRING),
}
"""A part of what is allowed: neither references nor alternatives nor defaults, and nothing newer than 1.16."""
_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": float, "boolean": bool}


def broken_rules(schema: Schema, where: str = "") -> Iterator[str]:
    """Yield how *schema* is not structural."""
    if unknown := schema.keys() - _ALLOWED:
        yield f"{where}: {', '.join(sorted(unknown))}"
    kind, free, either = schema.get("type"), schema.get(PRESERVE), schema.get(INT_OR_STRING)
    if kind is None and not (free or either):
        yield f"{where}: no type"
    if either and (kind or free):
        yield f"{where}: int-or-string with something else"
    if kind is not None and kind not in _TYPES:
        yield f"{where}: type {kind}"
    if ("items" in schema) != (kind == "array"):
        yield f"{where}: items"
    if kind != "object" and schema.keys() & {"properties", "additionalProperties", "required"}:
        yield f"{where}: entries of a {kind}"
    if "properties" in schema and "additionalProperties" in schema:
        yield f"{where}: properties and additionalProperties"
    if not all(isinstance(each, _TYPES[str(kind)]) for each in schema.get("enum", ())):
        yield f"{where}: enum of another type"
    if re.search(r"\(\?(?!:)|\\[1-9]|[*+?}]\+", schema.get("pattern", "")):
        yield f"{where}: a pattern that Go does not have"
    for name, each in _parts(schema):
        yield from broken_rules(each, f"{where}/{name}") if isinstance(each, dict) else [f"{where}/{name}: no schema"]


def _parts(schema: Schema) -> Iterator[tuple[str, Any]]:
    yield from schema.get("properties", {}).items()
    yield from ((key, schema[key]) for key in ("items", "additionalProperties") if key in schema)


def complaints(schema: Schema, value: object) -> list[str]:
    """What kubectl and server-side apply say about *value*: also fields that are not in the schema."""
    return [f"{error.json_path}: {error.message}" for error in Draft7Validator(_strict(schema)).iter_errors(value)]


def _strict(schema: Schema) -> Schema:
    made = {key: value for key, value in schema.items() if not key.startswith("x-")}
    if schema.get(INT_OR_STRING):
        made["type"] = ["integer", "string"]
    if "properties" in schema:
        made["properties"] = {name: _strict(each) for name, each in schema["properties"].items()}
    if "items" in schema:
        made["items"] = _strict(schema["items"])
    if "additionalProperties" in schema:
        made["additionalProperties"] = _strict(schema["additionalProperties"])
    elif schema.get("type") == "object" and not schema.get(PRESERVE):
        made["additionalProperties"] = False
    return made
