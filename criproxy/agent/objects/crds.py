"""The CustomResourceDefinitions of our objects; their schemas are made of the models that check policy files too."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import yaml
from pydantic import BaseModel

from criproxy.agent.objects.node_policy import Object, Spec, Status
from criproxy.agent.objects.placement import PlacementStatus
from criproxy.agent.objects.structural_schema import Schema, merged, structural
from criproxy.config.schema import WithDocstrings, policy_schema
from criproxy.placement.policies import BUILTIN

GROUP = "criproxy.io"
VERSION = "v1alpha1"


def custom_resources(policies: Iterable[str] = BUILTIN) -> list[Object]:
    """The definitions of NodePolicy and NodePlacement.

    Args:
        policies: those that a NodePolicy may name.

    Raises:
        ConfigError: a policy of another package is broken.
    """
    spec = _schema(Spec)
    spec["properties"]["policy"] = {"description": "The content of a policy file.", **policy_file(policies)}
    return [
        _definition(
            {"kind": "NodePolicy", "plural": "nodepolicies", "shortNames": ["npol"]},
            "A policy for the nodes that it selects, and how it is rolled out.",
            {"spec": spec, "status": _schema(Status)},
            [
                _column("Priority", "integer", ".spec.priority"),
                _column("Policy", "string", ".spec.policy.policy"),
                _column("Nodes", "integer", ".status.rollout.nodes"),
                _column("Stopped", "boolean", ".status.stopped"),
                _column("Message", "string", ".status.message"),
                _column("Age", "date", ".metadata.creationTimestamp"),
            ],
            required=["spec"],
        ),
        _definition(
            {"kind": "NodePlacement", "plural": "nodeplacements", "shortNames": ["npl"]},
            "What criproxy reports about the node of the same name. The agent of the node writes it.",
            {"status": _schema(PlacementStatus)},
            [
                _column("Phase", "string", ".status.phase"),
                _column("Ready", "string", ".status.ready"),
                _column("Policy", "string", ".status.policy.name"),
                _column("Hash", "string", ".status.policy.hash"),
                _column("Exclusive", "integer", ".status.cpus.exclusive"),
                _column("Free", "integer", ".status.cpus.free"),
                _column("Seen", "date", ".status.observedAt"),
                _column("Age", "date", ".metadata.creationTimestamp"),
                _column("Problem", "string", ".status.problems[0]"),
            ],
        ),
    ]


def as_yaml(obj: Object) -> str:
    """One of them as a document of YAML."""
    return yaml.dump(obj, Dumper=_WithoutAliases, sort_keys=False, width=120)


class _WithoutAliases(yaml.SafeDumper):
    """Writes a value that occurs twice out twice: people read it."""

    def ignore_aliases(self, data: object) -> bool:
        """Always."""
        return True


def policy_file(policies: Iterable[str]) -> Schema:
    """The structural schema of a policy file: the options of all policies beside each other."""
    schema = policy_schema(policies)
    definitions = schema.get("definitions", {})
    properties = {name: structural(each, definitions) for name, each in schema["properties"].items()}
    variants: dict[str, dict[str, Schema]] = defaultdict(dict)
    for branch in schema["allOf"]:
        policy = branch["if"]["properties"]["policy"]["const"]
        for name, option in branch["then"]["properties"].items():
            if name not in properties:
                variants[name][policy] = structural(option, definitions)
    properties |= {name: merged(each) for name, each in variants.items()}
    return {"type": "object", "required": ["policy"], "properties": properties}


def _schema(model: type[BaseModel]) -> Schema:
    schema = model.model_json_schema(schema_generator=WithDocstrings)
    return structural(schema, schema.get("$defs", {}))


def _column(name: str, kind: str, path: str) -> Object:
    return {"name": name, "type": kind, "jsonPath": path}


def _definition(
    names: Object, description: str, properties: Schema, columns: list[Object], required: list[str] | None = None
) -> Object:
    names |= {"singular": names["kind"].lower(), "listKind": f"{names['kind']}List", "categories": ["criproxy"]}
    schema: dict[str, Any] = {"description": description, "type": "object", "properties": properties}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema | ({"required": required} if required else {})},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }
