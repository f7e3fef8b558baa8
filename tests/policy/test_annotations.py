"""Wishes are read with their type, where the namespace may have them."""

import pytest

from criproxy.errors import BadAnnotation, StatusCode
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod
from criproxy.policy.annotations import Wishes
from criproxy.sim.machines import machine

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


def test_values_have_types() -> None:
    """Truth in any case, words without spaces, nothing where nothing is said."""
    wishes = Wishes(NODE, MAIN)
    assert wishes.boolean("prefer-shared-cpus") is True
    assert wishes.words("memory-type") == ("dram", "hbm")
    assert wishes.text("memory-type") == "dram, hbm"
    assert wishes.boolean("hide-hyperthreads") is None
    assert wishes.ignored == []


def test_what_cannot_be_understood_refuses_the_container() -> None:
    """With INVALID_ARGUMENT and a sentence that names container, annotation, value and what would be right."""
    with pytest.raises(BadAnnotation) as caught:
        Wishes(NODE, MAIN).boolean("prefer-isolated-cpus")
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
    assert str(caught.value) == (
        "container shop/web/main: annotation prefer-isolated-cpus.resource-policy.nri.io/container.main "
        "cannot be understood: 'maybe' must be true or false"
    )


@pytest.mark.parametrize(
    ("allowed", "reserved", "shared"),
    [
        ({}, None, True),
        ({"*": ("*",)}, True, True),
        ({"shop": ("prefer-reserved-cpus",)}, True, None),
        ({"sh?p": ("prefer-*",)}, True, True),
        ({"other": ("*",)}, None, None),
    ],
)
def test_namespaces_use_the_keys_that_they_may(
    allowed: dict[str, tuple[str, ...]], reserved: bool | None, shared: bool | None
) -> None:
    """By default all but those that reach the reserved CPUs; what is ignored is told."""
    wishes = Wishes(NODE, MAIN, allowed)
    assert wishes.boolean("prefer-reserved-cpus") is reserved
    assert wishes.boolean("prefer-shared-cpus") is shared
    assert len(wishes.ignored) == (reserved is None) + (shared is None)


def test_a_container_of_an_unknown_pod_wishes_nothing() -> None:
    """It is placed like one without annotations."""
    assert Wishes(Node(NODE.topology), MAIN).boolean("prefer-shared-cpus") is None
