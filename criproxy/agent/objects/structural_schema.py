"""JSON Schemas as the API server takes them in a CustomResourceDefinition: structural, as since Kubernetes 1.16.

A structural schema has no references, one type for each value, and no alternatives between types. What JSON Schema says
beyond that is left to the daemon, which judges every configuration. Unknown options are not forbidden here, but are not
in the schema either: kubectl and server-side apply refuse them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

Schema = dict[str, Any]
PRESERVE = "x-kubernetes-preserve-unknown-fields"
"""Any value."""
INT_OR_STRING = "x-kubernetes-int-or-string"
_OF_SCALARS = ("pattern", "minLength", "maxLength", "minimum", "maximum")
"""Each of them holds for values of one type, and lets those of others pass."""
_COPIED = (*_OF_SCALARS, "minItems", "maxItems", "required")
_WORDS = ("title", "description", "default", "examples", "enumDescriptions")
_TYPES = {str: "string", int: "integer", bool: "boolean"}
_KNOWN = {
    *_COPIED,
    *_WORDS,
    *("$ref", "$defs", "anyOf", "type", "enum", "const", "items", "properties"),
    *("patternProperties", "additionalProperties"),
}


def structural(schema: Schema | bool, definitions: Schema) -> Schema:
    """Convert a JSON Schema.

    Args:
        schema: as pydantic makes it.
        definitions: what it refers to, by the last part of the reference.

    Raises:
        ValueError: it has a keyword that is not handled here.
    """
    if isinstance(schema, bool):
        return {PRESERVE: True}
    schema = _resolved(schema, definitions)
    branches = list(_branches(schema, definitions))
    words = _words(schema)
    if len(branches) == 1:
        return words | _single(branches[0], definitions)
    kinds = [_type(branch) for branch in branches]
    union = {INT_OR_STRING: True} if set(kinds) == {"integer", "string"} else {PRESERVE: True}
    if len(set(kinds)) == len(kinds):
        union |= {key: branch[key] for branch in branches for key in _OF_SCALARS if key in branch}
    return words | union


def _resolved(schema: Schema, definitions: Schema) -> Schema:
    if unknown := schema.keys() - _KNOWN:
        raise ValueError(f"no way to say {', '.join(sorted(unknown))} in a structural schema is known: {schema}")
    if (reference := schema.get("$ref")) is None:
        return schema
    return _resolved(definitions[str(reference).rpartition("/")[2]], definitions) | {
        key: value for key, value in schema.items() if key != "$ref"
    }


def _branches(schema: Schema, definitions: Schema) -> Iterator[Schema]:
    """The alternatives of a resolved schema; null is none, since an option that is left out says the same."""
    for each in schema.get("anyOf", ()):
        yield from _branches(_resolved(each, definitions), definitions)
    if "anyOf" not in schema:
        kind = _type(schema)
        for each in kind if isinstance(kind, list) else [kind]:
            if each != "null":
                yield schema | {"type": each}


def _type(schema: Schema) -> str | list[str]:
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    of_values = sorted({_TYPES.get(type(value), "") for value in values})
    named: str | list[str] = schema.get("type") or of_values or ""
    return named


def _words(schema: Schema) -> Schema:
    text = schema.get("description", "")
    default = schema.get("default")
    if (default is False or (default and isinstance(default, bool | int | float | str))) and "default" not in text:
        text += f" Default: {json.dumps(default)}."
    return {"description": text.strip()} if text else {}


def _single(schema: Schema, definitions: Schema) -> Schema:
    if not schema["type"]:
        return {PRESERVE: True}
    made: Schema = {"type": schema["type"]} | {key: schema[key] for key in _COPIED if key in schema}
    if "enum" in schema or "const" in schema:
        made["enum"] = [*schema.get("enum", [schema.get("const")])]
    if made["type"] == "array":
        made["items"] = structural(schema.get("items", True), definitions)
    if made["type"] == "object":
        made |= _object(schema, definitions)
    return made


def _object(schema: Schema, definitions: Schema) -> Schema:
    """The entries of an object; names that users choose (patterns of them, too) are of one kind."""
    named = {name: structural(each, definitions) for name, each in schema.get("properties", {}).items()}
    patterns = [*schema.get("patternProperties", {}).values()]
    chosen = [*patterns, schema.get("additionalProperties", not named and not patterns)]
    values = [each for each in chosen if each is not False]
    if named:
        return {"properties": named} | ({PRESERVE: True} if values else {})
    if len(values) == 1 and values[0] is not True:
        return {"additionalProperties": structural(values[0], definitions)}
    return {PRESERVE: True}


def merged(variants: Mapping[str, Schema]) -> Schema:
    """One schema for an option that several policies have.

    Args:
        variants: policy → its structural schema of the option.
    """
    shapes = [{key: value for key, value in each.items() if key != "description"} for each in variants.values()]
    policies: dict[str, list[str]] = {}
    for policy, each in variants.items():
        policies.setdefault(each.get("description", ""), []).append(policy)
    text = " ".join(f"With {', '.join(names)}: {words}" for words, names in policies.items())
    text = text if len(policies) > 1 else next(iter(policies))
    return {"description": text} | (shapes[0] if all(shape == shapes[0] for shape in shapes) else {PRESERVE: True})
