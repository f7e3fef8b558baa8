"""Editors know of policy files what the loader knows."""

import json
import linecache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from criproxy.config.schema import policy_schema
from criproxy.config.settings import Common
from criproxy.placement.policies import BUILTIN
from tests.config.files import told
from tests.config.packages import POLICY, install
from tests.conftest import ROOT

EXAMPLES = sorted((ROOT / "policies").glob("*.yaml"))
SCHEMA = policy_schema(BUILTIN)


def complaints(schema: dict[str, Any], text: str) -> list[str]:
    """What an editor underlines in *text*."""
    return [error.message for error in Draft7Validator(schema).iter_errors(yaml.safe_load(text))]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples(example: Path) -> None:
    """Each is valid, and names the schema beside it in its first line."""
    text = example.read_text()

    assert complaints(SCHEMA, text) == []
    assert text.splitlines()[0] == "# yaml-language-server: $schema=policy.schema.json"


def test_the_schema_beside_the_examples() -> None:
    """It is that of the built-in policies, and valid; `criproxy schema > policies/policy.schema.json` renews it."""
    assert json.loads((ROOT / "policies/policy.schema.json").read_text()) == SCHEMA
    Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "policy: statik\n",
        "onError: pass\n",
        "policy: none\nonError: never\n",
        "policy: static\nreserved: 0\n",
        "policy: static\nreservedCpus: a-b\n",
        "policy: static\nreservedCpus: true\n",
        "policy: static\nreservedCpus: [-1]\n",
        "policy: static\nreservedCpus: 5000\n",
        "- policy\n",
        "policy: static\nclasses: {a b: {irq: away}}\n",
        "policy: static\nclasses: {a: {cpu: {uclampMin: 120}}}\n",
        "policy: static\nclasses: {a: {cpu: {minFreq: 2.4}}}\n",
        "policy: static\nclasses: {a: {memory: {high: 90.5}}}\n",
        "policy: static\nclasses: {a: {rdt: {l3: 60.5%}}}\n",
        "policy: static\nclasses: {a: {rdt: {mb: {all: [1000 MBps]}}}}\n",
    ],
)
def test_mistakes(tmp_path: Path, text: str) -> None:
    """What the loader refuses, an editor underlines, too."""
    assert complaints(SCHEMA, text)
    assert told(tmp_path, text)


@pytest.mark.parametrize(
    "part",
    [
        "cpu: {minFreq: 2.4G, maxFreq: 2800000, uclampMin: 12.5, uclampMax: 50 %, burst: idle}",
        "memory: {high: 90%, low: 8192, min: 1.5Mi}",
        "blockIO: {devices: [{paths: [/dev/sda], readBps: 50M, writeIOPS: 1000}]}",
        "rdt: {l3: {all: {code: 50-60%, data: 0-3}, '1': '0xf0'}, mb: [50%, 4000000000MBps]}",
    ],
)
def test_classes(tmp_path: Path, part: str) -> None:
    """What the loader takes, an editor does not underline."""
    text = f"policy: static\nclasses: {{a: {{{part}}}}}\n"

    assert complaints(SCHEMA, text) == []
    assert told(tmp_path, text) == []


def test_every_option_is_explained() -> None:
    """Each has a description, and what has a default shows it as it would be written."""
    branches = [branch["then"]["properties"] for branch in SCHEMA["allOf"]]
    options = SCHEMA["properties"] | {
        name: option for branch in branches for name, option in branch.items() if option is not True
    }

    assert sorted(SCHEMA["properties"]) == ["adopt", "apply", "devices", "onError", "policy", "promote"]
    assert SCHEMA["properties"]["policy"]["enum"] == list(BUILTIN)
    assert len(SCHEMA["properties"]["policy"]["enumDescriptions"]) == len(BUILTIN)
    assert [name for name, option in options.items() if not option.get("description")] == []
    assert SCHEMA["properties"]["onError"]["default"] == Common.model_fields["on_error"].default
    assert options["reservedCpus"]["default"] == ""
    assert options["reservedCpus"]["examples"]


def test_the_options_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed policy is completed like ours, groups of options within options included."""
    install(tmp_path, monkeypatch, points="fixed = acme:ENTRY", name="acme")
    schema = policy_schema(["none", "fixed"])
    pools = schema["allOf"][1]["then"]["properties"]["pools"]

    assert schema["properties"]["policy"]["enumDescriptions"][1] == "Fixed pools."
    assert schema["allOf"][1]["then"]["required"] == ["color"]
    assert pools["description"] == "The pools, in order of preference."
    assert schema["definitions"]["Pool"]["properties"]["size"]["description"] == "How many containers fit."
    assert complaints(schema, "policy: fixed\ncolor: red\npools: [{cpus: 0-1, size: 3}]\n") == []
    assert complaints(schema, "policy: fixed\ncolor: red\npools: [{cpus: 0-1, size: 9}]\n")
    assert complaints(schema, "policy: none\npools: [{cpus: 0-1}]\n")


def test_policies_of_several_packages_with_models_of_the_same_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is completed with its own."""
    for color in ("red", "green", "blue"):
        source = POLICY.replace("PoolOptions", "AllOptions").replace("cpus: CpuSetOption", f"{color}: CpuSetOption")
        install(tmp_path, monkeypatch, source, points=f"{color} = {color}:ENTRY", name=color)

    schema = policy_schema(["red", "green", "blue"])

    for color in ("red", "green", "blue"):
        assert complaints(schema, f"policy: {color}\ncolor: x\npools: [{{{color}: 0-1}}]\n") == []


def test_a_package_without_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where docstrings cannot be read the schema comes without them."""
    install(tmp_path, monkeypatch, points="fixed = acme:ENTRY", name="acme")
    policy_schema(["fixed"])
    (tmp_path / "acme/acme.py").unlink()
    linecache.clearcache()

    properties = policy_schema(["fixed"])["allOf"][0]["then"]["properties"]

    assert "description" not in properties["pools"]
    assert properties["reservedCpus"]["description"]
