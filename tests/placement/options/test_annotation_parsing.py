"""Wishes are read with their type, where the namespace may have them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from criproxy.errors import BadAnnotation, StatusCode
from criproxy.model.node import Node
from criproxy.model.text.annotations import DOMAINS
from criproxy.model.workload import Container, Pod
from criproxy.placement.alloc.affinity.affinity import parse_affinities
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.pod_wishes import memory_wish
from criproxy.placement.options.policy_options import Options
from criproxy.simulate.hosts import machine

POD = Pod(
    key="s",
    annotations={
        "prefer-shared-cpus.criproxy.io/pod": "True",
        "prefer-isolated-cpus.resource-policy.nri.io/container.main": "maybe",
        "memory-type.criproxy.io": "dram, hbm",
        "prefer-reserved-cpus.criproxy.io/pod": "true",
    },
)
MAIN = Container(key="c", pod="s", name="main", namespace="shop", pod_name="web")
NODE = Node(machine(nodes=1, cores=2), pods={"s": POD})


def test_what_cannot_be_understood_refuses_the_container() -> None:
    """With INVALID_ARGUMENT and a sentence that names container, annotation, value and what would be right."""
    with pytest.raises(BadAnnotation) as caught:
        Wishes(NODE, MAIN).boolean("prefer-isolated-cpus")
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
    assert str(caught.value) == (
        "container shop/web/main: annotation prefer-isolated-cpus.resource-policy.nri.io/container.main "
        "is invalid: 'maybe' must be true or false"
    )


def wishes_of(annotations: dict[str, str], name: str = "main") -> Wishes:
    """The wishes of a container in a pod with these annotations."""
    node = Node(machine(), pods={"s": Pod(key="s", annotations=annotations)})
    return Wishes(node, replace(MAIN, name=name))


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        ("main: true\nother: no", "main", True),
        ("main: true\nother: no", "other", False),
        ("main: true", "third", None),
        ("true", "third", True),
    ],
)
def test_the_old_form_is_a_map_of_containers(value: str, name: str, expected: bool | None) -> None:
    """CRI-RM's deprecated form names the key after the slash; a plain value is for all."""
    wishes = wishes_of({"cri-resource-manager.intel.com/prefer-shared-cpus": value}, name)
    assert wishes.boolean("prefer-shared-cpus") is expected


@pytest.mark.parametrize(
    ("annotations", "reserved", "preserved", "shared"),
    [
        pytest.param({}, None, None, True, id="nothing-said"),
        pytest.param({"allow": {"*": ["*"]}}, True, True, True, id="all"),
        pytest.param({"allow": {"shop": ["cpu.preserve"]}}, None, True, None, id="one-by-name"),
        pytest.param({"deny": {"shop": ["prefer-shared-*"]}}, None, None, None, id="denied-beside-the-default"),
        pytest.param({"deny": {"other": ["*"]}}, None, None, True, id="denied-to-others"),
        pytest.param({"allow": {"*": ["*"]}, "deny": {"s*": ["cpu.*"]}}, True, None, True, id="denied-of-all"),
    ],
)
def test_denied_and_restricted_keys(
    annotations: dict[str, dict[str, list[str]]], reserved: bool | None, preserved: bool | None, shared: bool | None
) -> None:
    """What is denied is ignored, whoever allows it; and so is what reaches others, unless it is allowed."""
    pod = Pod(key="s", annotations={**POD.annotations, "cpu.preserve.criproxy.io": "true"})
    node = Node(NODE.topology, pods={"s": pod})
    wishes = Wishes(node, MAIN, Options.model_validate({"annotations": annotations}))
    found = [wishes.boolean(key) for key in ("prefer-reserved-cpus", "cpu.preserve", "prefer-shared-cpus")]
    assert found == [reserved, preserved, shared]
    assert len(wishes.ignored) == found.count(None)


@pytest.mark.parametrize("alias", ["cpu.preserve.{}", "cpu.preserve.{}/pod", "cpu.preserve.{}/container.main"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_every_way_to_write_a_restricted_key_is_restricted(alias: str, domain: str) -> None:
    """Those of the peers' domains too."""
    wishes = wishes_of({alias.format(domain): "true"})
    assert (wishes.boolean("cpu.preserve"), len(wishes.ignored)) == (None, 1)


def test_a_pod_with_thousands_of_annotations_is_told_of_in_a_few_words() -> None:
    """The first are named, the others counted."""
    notes = wishes_of({f"x{number:04d}.criproxy.io/pod": "1" for number in range(8000)}).notes()
    assert len(notes) == 9
    assert notes[0].startswith("annotation x0000.criproxy.io/pod has no effect")
    assert notes[-1] == "7992 more annotations have no effect"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("cpu.preserve", "y" * 300_000, id="boolean"),
        pytest.param("affinity", "- x\n" * 100_000, id="document"),
        pytest.param("affinity", "[" * 15_000, id="nested"),
        pytest.param("affinity", "9" * 5000, id="digits"),
        pytest.param("affinity", "2020-99-99", id="date"),
        pytest.param("affinity", "? [a]\n: b", id="key-that-is-a-list"),
        pytest.param("memory-type", "\u202e" * 1000, id="invisible"),
        pytest.param("cold-start", "duration: " + "9" * 5000 + "s", id="duration"),
    ],
)
def test_a_refusal_is_short_and_in_our_words(key: str, value: str) -> None:
    """Whatever the value: what is read is bounded, and so is what is said about it."""
    everything = Options.model_validate({"annotations": {"allow": {"*": ["*"]}}})
    wishes = Wishes(wishes_of({f"{key}.criproxy.io/pod": value}).node, MAIN, everything)
    readers: dict[str, Callable[[], object]] = {
        "affinity": lambda: wishes.document(key, lambda data: parse_affinities(data, "main", anti=False)),
        "cpu.preserve": lambda: wishes.boolean(key),
    }
    with pytest.raises(BadAnnotation) as caught:
        readers.get(key, lambda: memory_wish(wishes))()
    said = str(caught.value)
    assert said.startswith(f"container shop/web/main: annotation {key}.criproxy.io/pod is invalid: ")
    assert len(said) < 800
    assert not any(word in said for word in ("limit (4300", "must be in 1..12", "Exceeds"))
