"""docs/annotations.md: every example is understood, every malformed value does what the page says."""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml

from criproxy.config.document import parse
from criproxy.config.settings import read_settings
from criproxy.cri.devices import CDI_ANNOTATIONS
from criproxy.cri.stamp import ANNOTATION, MISSED, Stamp
from criproxy.devices.evidence.device_request import ANNOTATION as DEVICES
from criproxy.errors import BadAnnotation, Refused
from criproxy.model.node import Node
from criproxy.model.text.annotations import DOMAINS, MAX_VALUE_CHARS
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.decision import Decision
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, PodCreated
from criproxy.placement.options.annotation_keys import CLASS_KEYS, KEYS
from tests.conftest import ROOT
from tests.placement.policies.shapes import n4c16
from tests.tables import policies_of

PAGE = (ROOT / "docs/annotations.md").read_text()
SECTIONS = dict(re.findall(r"^### `([\w.-]+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
OPTIONS: Mapping[str, dict[str, object]] = {
    "pools": {"pools": [{"name": "dualcpu", "cpu": 2}]},
    "balloons": {"balloonTypes": [{"name": "database"}]},
}
OWN = {key: known for key, known in KEYS.items() if key not in CLASS_KEYS}
"""Those with a section; the others are in docs/classes.md."""
GOLD = {
    "cpu": {"governor": "performance"},
    "memory": {"high": "1Gi"},
    "blockIO": {"devices": [{"paths": ["/dev/sda"], "readBps": "50M"}]},
    "rdt": {"l3": "50%"},
    "scheduling": {"nice": 5},
    "irq": "away",
}
"""A class with all parts."""
NAMING = [
    (key, row[1])
    for row in re.finditer(r"^\| `?(\w+)`? \| `[\w-]+` \|.*$", (ROOT / "docs/classes.md").read_text(), re.MULTILINE)
    for key in re.findall(r"`([\w-]+)`", row[0])
    if key in CLASS_KEYS
]
"""Keys that name a class, each with the part about which it decides."""
READERS = [pytest.param(key, policy, id=f"{key}-{policy}") for key in OWN for policy in policies_of(key)]


def placed(policy: str, annotations: Mapping[str, str], name: str) -> Decision:
    """What *policy* decides about a Guaranteed container of two CPUs and a card, on a machine with isolated CPUs."""
    allow = {"annotations": {"allow": {"*": ["*"]}}}
    options = {**OPTIONS.get(policy, {}), **allow, "policy": policy, "reservedCpus": "0", "classes": {"gold": GOLD}}
    found = read_settings(parse(yaml.safe_dump(options)), Path("policy.yaml"))
    assert found.settings is not None, found.wrong
    by = found.settings.build_policy()
    node = Node(n4c16(isolated="6-7"))
    pod = Pod(key="p", name="web", namespace="shop", annotations=annotations)
    container = Container(key="c", pod="p", name=name, namespace="shop", qos=QosClass.GUARANTEED, cpu_milli=2000)
    with_card = replace(container, hints=(frozenset({0}),))
    return step(step(node, PodCreated(pod), by).node, ContainerCreating(with_card), by)


def example(key: str) -> tuple[str, str]:
    """The annotation in the section of *key*: its name and its value."""
    (block,) = re.findall(r"```yaml\n(.*?)```", SECTIONS[key], re.DOTALL)
    ((name, value),) = yaml.safe_load(block).items()
    return name, value


def test_every_annotation_has_a_section() -> None:
    """And no other has one; the page about classes has the keys that name one, and what each decides about."""
    assert SECTIONS.keys() == OWN.keys()
    assert {key for key, _ in NAMING} == CLASS_KEYS


@pytest.mark.parametrize(("key", "policy"), READERS)
def test_every_example_is_understood(key: str, policy: str) -> None:
    """By each policy that reads the annotation, without a note that it has no effect."""
    name, value = example(key)
    decision = placed(policy, {name: value}, name.partition("container.")[2] or "main")

    assert name.startswith(f"{key}.criproxy.io")
    assert isinstance(value, str)
    assert not any(reason.startswith("annotation ") for reason in decision.sentences)


@pytest.mark.parametrize("policy", policies_of("class"))
@pytest.mark.parametrize(("key", "part"), NAMING)
def test_every_key_of_a_class_is_understood(key: str, part: str, policy: str) -> None:
    """It gives the container the part of the class that the page says; the name of no class refuses it."""
    decision = placed(policy, {f"{key}.criproxy.io/container.main": "gold"}, "main")

    assert {kind for kind, _ in decision.node.grants["c"].controls.classes} == ({*GOLD} if part == "all" else {part})
    assert not any(reason.startswith("annotation ") for reason in decision.sentences)
    with pytest.raises(Refused, match="silver"):
        placed(policy, {f"{key}.criproxy.io/pod": "silver"}, "main")


@pytest.mark.parametrize(("key", "policy"), [each for each in READERS if each.values[0] != "pool.podpools"])
def test_a_malformed_value_refuses_the_container(key: str, policy: str) -> None:
    """With a sentence that names the annotation, whatever the policy; an unknown balloon type, too."""
    with pytest.raises(BadAnnotation, match=key):
        placed(policy, {f"{key}.criproxy.io/pod": "nonsense"}, "main")


def test_a_pool_that_does_not_exist() -> None:
    """The pod runs in the pool default, and the decision says so."""
    decision = placed("pools", {"pool.podpools.criproxy.io/pod": "nonsense"}, "main")

    assert decision.node.grants["c"].pool == "default"
    assert any("there is no pool 'nonsense'" in reason for reason in decision.sentences)


def test_forms_and_limits() -> None:
    """The page has every domain in the order in which they count, and the largest size of a value."""
    assert "in the order " + ", ".join(f"`{domain}`" for domain in DOMAINS) in " ".join(PAGE.split())
    assert f"{MAX_VALUE_CHARS:,} characters" in " ".join(PAGE.split())


def test_the_domain_counts_before_the_scope() -> None:
    """An annotation for the pod in our domain wins over one for the container in another one."""
    said = {
        "prefer-shared-cpus.criproxy.io/pod": "true",
        "prefer-shared-cpus.resource-policy.nri.io/container.main": "false",
    }

    assert placed("topology-aware", said, "main").node.grants["c"].exclusive == frozenset()


def test_container_annotations() -> None:
    """The page has those that criproxy writes and reads, and every field of its stamp."""
    part = PAGE.partition("\n## Container annotations\n")[2]
    named = set(re.findall(r"`([^`]+)`", part))

    assert {ANNOTATION, MISSED, f"{DEVICES}RESOURCE", f"{CDI_ANNOTATIONS}…"} <= named
    assert {field.name for field in fields(Stamp)} <= named
