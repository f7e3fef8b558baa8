"""The JSON Schema of policy files, from which editors complete, explain and underline.

It is made of the same models that check a file. The words are the docstrings in the source, read only here: the daemon
needs none of them.
"""

import ast
import inspect
from collections.abc import Iterable
from textwrap import dedent
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from criproxy.config.settings import find, with_devices
from criproxy.model.cpuset import format_cpuset
from criproxy.placement.classes.section import with_classes
from criproxy.placement.policies import Entry

DIALECT = "http://json-schema.org/draft-07/schema#"
"""What yaml-language-server understands best."""

Schema = dict[str, Any]


def policy_schema(policies: Iterable[str]) -> Schema:
    """The schema of a policy file that names one of *policies*.

    Raises:
        ConfigError: one of them is broken.
    """
    entries = {name: find(name) for name in policies}
    definitions: Schema = {}
    common = _properties(with_devices(), definitions)
    common["policy"] |= {"enum": list(entries), "enumDescriptions": [summary(entry) for entry in entries.values()]}
    branches = [_branch(name, entry, common, definitions) for name, entry in entries.items()]
    schema: Schema = {
        "$schema": DIALECT,
        "title": "criproxy policy file",
        "description": "Where containers of a node run. `criproxy check` also checks such a file against the machine.",
        "type": "object",
        "properties": common,
        "required": ["policy"],
        "allOf": branches,
    }
    return schema | ({"definitions": definitions} if definitions else {})


def _branch(name: str, entry: Entry, common: Schema, definitions: Schema) -> Schema:
    """The options that a file has if it names this policy."""
    then: Schema = {
        "properties": _properties(with_classes(entry.options), definitions, name) | dict.fromkeys(common, True),
        "additionalProperties": False,
    }
    if required := [field.alias or name for name, field in entry.options.model_fields.items() if field.is_required()]:
        then["required"] = required
    return {"if": {"properties": {"policy": {"const": name}}, "required": ["policy"]}, "then": then}


def _properties(model: type[BaseModel], definitions: Schema, policy: str = "") -> Schema:
    """The options of *model*, that of a *policy*; what they are made of is added to *definitions*, once for all."""
    schema, nested = _schema(model, "")
    if any(definitions.get(name, value) != value for name, value in nested.items()):  # another one has that name
        schema, nested = _schema(model, f"{policy}.")
    definitions |= nested
    return dict(schema.get("properties", {}))


def _schema(model: type[BaseModel], prefix: str) -> tuple[Schema, Schema]:
    schema = model.model_json_schema(ref_template=f"#/definitions/{prefix}{{model}}", schema_generator=WithDocstrings)
    return schema, {f"{prefix}{name}": value for name, value in schema.get("$defs", {}).items()}


class WithDocstrings(GenerateJsonSchema):
    """Takes the docstring under each field for its description."""

    def encode_default(self, dft: object) -> object:
        """A default as it would be written in a policy file."""
        return format_cpuset(dft) if isinstance(dft, frozenset) else super().encode_default(dft)

    def dict_schema(self, schema: core_schema.DictSchema) -> Schema:
        """A mapping whose keys have a form has no others."""
        found = super().dict_schema(schema)
        return found | ({"additionalProperties": False} if "patternProperties" in found else {})

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        """Add the descriptions that the model itself does not carry."""
        json_schema = super().model_schema(schema)
        model = schema["cls"]
        words = _field_docstrings(model)
        for name, field in model.model_fields.items():
            described = json_schema.get("properties", {}).get(field.alias or name)
            if described is not None and name in words:
                described.pop("title", None)
                described.setdefault("description", words[name])
        return json_schema


def _field_docstrings(model: type) -> dict[str, str]:
    """The literal under each annotated name in the body of *model* and of what it derives from."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if cls is BaseModel or not issubclass(cls, BaseModel):
            continue
        try:
            body = ast.parse(dedent(inspect.getsource(cls))).body[0]
        except OSError:  # `with_classes` made the class, or its package ships no source
            continue
        assert isinstance(body, ast.ClassDef)
        for field, words in zip(body.body, body.body[1:], strict=False):
            match field, words:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found


def summary(entry: Entry) -> str:
    """The first paragraph of what the policy says of itself."""
    return " ".join((inspect.getdoc(entry.build) or "").partition("\n\n")[0].split())
