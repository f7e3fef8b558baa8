"""The definitions of our objects are ones that Kubernetes takes, and check what users write."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from criproxy.agent.objects.crds import custom_resources
from criproxy.agent.objects.structural_schema import structural
from criproxy.cli import main
from criproxy.config.convert_options import list_of_pools
from criproxy.config.document import parse
from criproxy.config.settings import read_settings
from tests.agent.objects.structural import broken_rules, complaints
from tests.conftest import ROOT
from tests.tables import definitions

FENCE = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = sorted((ROOT / "policies").glob("*.yaml"))
VERSIONS = ("1.25", "1.30", "1.37")
CRDS = {each["spec"]["names"]["kind"]: each for each in custom_resources()}
GO = {"nodeSelector": {}, "policy": {"policy": "static"}}


def schema_of(kind: str) -> dict[str, Any]:
    """Return the schema of the objects of a *kind*."""
    (version,) = CRDS[kind]["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def said(**spec: object) -> list[str]:
    """Return what is wrong with a NodePolicy, besides which *spec* is valid."""
    return complaints(schema_of("NodePolicy"), {"spec": {**GO, **spec}})


@pytest.mark.parametrize("kind", CRDS)
def test_the_definition_is_one_of_kubernetes(kind: str) -> None:
    """By the schema of the API, in which nothing else may stand, and by its rules for structural schemas."""
    for version in VERSIONS:
        kubernetes_validate.validate(CRDS[kind], version, strict=True)
    assert list(broken_rules(schema_of(kind))) == []


@pytest.mark.parametrize(
    ("schema", "broken"),
    [
        ({"anyOf": [{"type": "string"}]}, [": anyOf", ": no type"]),
        ({"type": "array"}, [": items"]),
        ({"type": "object", "properties": {"a": {"type": "null"}}}, ["/a: type null"]),
        ({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}, [": properties and additi"]),
        ({"type": "object", "additionalProperties": False}, ["/additionalProperties: no schema"]),
        ({"type": "string", "pattern": "(?=a)"}, [": a pattern"]),
    ],
)
def test_the_rules_find_what_breaks_them(schema: dict[str, Any], broken: list[str]) -> None:
    """The check above can fail."""
    found = list(broken_rules(schema))
    assert len(found) == len(broken)
    assert all(each.startswith(start) for each, start in zip(found, broken, strict=True)), found


def test_the_definitions_in_the_chart_are_current() -> None:
    """``python -m tests.tables`` renews them, and `criproxy schema --crds` prints them."""
    texts = {file.name: text for file, text in definitions()}
    folder = ROOT / "deploy/chart/crds"
    assert {file.name: file.read_text() for file in folder.iterdir()} == texts
    printed = CliRunner().invoke(main, ["schema", "--crds"]).stdout
    assert [*yaml.safe_load_all(printed)] == [yaml.safe_load(text) for text in texts.values()]


def test_kubectl_apply_can_store_what_it_applied() -> None:
    """The annotation of a client-side apply may have 256 kB."""
    assert max(len(text) for _, text in definitions()) < 128_000


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_policy(example: Path) -> None:
    """None of its options is unknown, of another type, or outside its limits."""
    assert said(policy=yaml.safe_load(example.read_text())) == []


def test_every_policy_file_in_the_documentation_is_a_policy() -> None:
    """With its pools as a list, as `criproxy convert` writes them."""
    blocks = [block for page in (ROOT / "docs").rglob("*.md") for block in FENCE.findall(page.read_text())]
    documents = [document for document in map(parse, blocks) if isinstance(document.data, dict)]
    files = [each.data for each in documents if read_settings(each, Path("page.yaml")).settings is not None]

    assert len(files) > 20
    for each in files:
        assert said(policy=list_of_pools(each)) == [], each


@pytest.mark.parametrize(
    "option",
    [
        {"reservedCpus": 0},
        {"reservedCpus": "0-1,8"},
        {"reservedCpus": [0, 1]},
        {"reservedResources": {"cpu": 0.5}},
        {"reservedResources": {"cpu": "750m"}},
        {"annotations": {"allow": {"team-*": ["prefer-isolated-cpus"]}}},
        {"policy": "pools", "pools": [{"name": "a", "cpu": "50 %", "instances": 3}]},
        {
            "devices": {
                "classes": ["nvidia", {"name": "npu"}],
                "plugin": {"profiles": [{"name": "a", "class": "nvidia", "count": "auto"}]},
            }
        },
    ],
    ids=str,
)
def test_alternatives_of_an_option(option: dict[str, Any]) -> None:
    """What may be written in several ways in a file may be so in the object."""
    assert said(policy={"policy": "static", **option}) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"policy": {"policy": "static", "reservedCPUs": "0"}}, "'reservedCPUs' was unexpected"),
        ({"policy": {"policy": "statik"}}, "'statik' is not one of"),
        ({"policy": {"reservedCpus": "0"}}, "'policy' is a required property"),
        ({"policy": {"policy": "static", "exclusive": {"kept": "pod"}}}, "'kept' was unexpected"),
        ({"policy": {"policy": "static", "reservedCpus": "a-b"}}, "does not match"),
        ({"policy": {"policy": "static", "sharedRemainder": "yes"}}, "is not of type 'boolean'"),
        ({"nodeSelectors": {}}, "'nodeSelectors' was unexpected"),
        ({"nodeSelector": {"matchLabels": {"a": 1}}}, "is not of type 'string'"),
        ({"rollout": {"try": "10 minutes"}}, "does not match"),
        ({"rollout": {"atOnce": "half"}}, "does not match"),
        ({"rollout": {"atOnce": 0}}, "less than the minimum"),
        ({"rollout": {"stopAfterFailures": 0}}, "less than the minimum"),
    ],
)
def test_mistakes_are_found_before_any_node_sees_them(spec: dict[str, Any], expected: str) -> None:
    """A misspelt option, on the top level or below, and what no policy file may say."""
    assert any(expected in each for each in said(**spec)), said(**spec)


def test_a_selector_is_required() -> None:
    """A forgotten one must not select every node."""
    assert complaints(schema_of("NodePolicy"), {"spec": {"policy": {"policy": "static"}}})
    assert complaints(schema_of("NodePolicy"), {})


def test_columns_lead_to_fields() -> None:
    """Each column of `kubectl get` shows a field that there is."""
    for kind, crd in CRDS.items():
        for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]:
            at, path = schema_of(kind), column["jsonPath"].removeprefix(".").replace("[0]", "").split(".")
            if path[0] == "metadata":
                continue
            for part in path:
                at = at["properties"][part]
            assert at["type"] in {column["type"], "string", "array"}, column


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param(
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
            {"type": "integer", "minimum": 1},
            id="optional",
        ),
        pytest.param(
            {"anyOf": [{"type": "string", "pattern": "^a$"}, {"type": "integer", "maximum": 3}]},
            {"x-kubernetes-int-or-string": True, "pattern": "^a$", "maximum": 3},
            id="int-or-string",
        ),
        pytest.param(
            {"anyOf": [{"type": "string", "pattern": "^a$"}, {"type": "string", "pattern": "^b$"}]},
            {"x-kubernetes-preserve-unknown-fields": True},
            id="two-of-a-type",
        ),
        pytest.param({"type": ["string", "integer"]}, {"x-kubernetes-int-or-string": True}, id="types"),
        pytest.param({"const": "a"}, {"type": "string", "enum": ["a"]}, id="constant"),
        pytest.param(
            {"type": "boolean", "default": False, "description": "Yes."},
            {"description": "Yes. Default: false.", "type": "boolean"},
            id="default",
        ),
        pytest.param(
            {"type": "object", "patternProperties": {"^a$": {"type": "string"}}},
            {"type": "object", "additionalProperties": {"type": "string"}},
            id="pattern",
        ),
        pytest.param(
            {"type": "object"}, {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, id="anything"
        ),
        pytest.param({"enum": ["high", 0]}, {"x-kubernetes-int-or-string": True}, id="values-of-two-types"),
        pytest.param({}, {"x-kubernetes-preserve-unknown-fields": True}, id="empty"),
        pytest.param(
            {"$ref": "#/x/A", "description": "Here."}, {"description": "Here.", "type": "string"}, id="reference"
        ),
    ],
)
def test_conversion(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    """What becomes of the parts of a JSON Schema."""
    assert structural(schema, {"A": {"type": "string", "description": "There."}}) == expected


def test_a_keyword_without_conversion_is_an_error() -> None:
    """It must not be lost."""
    with pytest.raises(ValueError, match="oneOf"):
        structural({"type": "object", "properties": {"a": {"oneOf": []}}}, {})
