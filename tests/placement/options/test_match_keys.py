"""Containers have the attributes by which CRI-RM's expressions match them."""

import pytest

from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.options.match_keys import attribute_of, is_key
from criproxy.simulate.hosts import machine

POD = Pod(key="s", uid="u1", name="web", labels={"app": "shop"}, annotations={"tier.criproxy.io": "front"})
MAIN = Container(key="c", pod="s", name="main", pod_name="web", namespace="shop", qos=QosClass.BURSTABLE)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "main"),
        ("namespace", "shop"),
        ("qosclass", "Burstable"),
        ("id", "c"),
        ("uid", "u1"),
        ("labels/app", "shop"),
        ("labels/io.kubernetes.container.name", "main"),
        ("tags/tier", "front"),
        ("pod/name", "web"),
        ("pod/uid", "u1"),
        ("pod/labels/app", "shop"),
        ("pod/labels/none", None),
        ("pod/annotations/tier.criproxy.io", "front"),
        ("colour", None),
        ("pod", None),
    ],
)
def test_keys(key: str, value: str | None) -> None:
    """Of the container, and with pod/ before them of its pod."""
    assert attribute_of(Node(machine(), pods={"s": POD}), MAIN)(key) == value
    assert is_key(key) is (key not in ("colour", "pod"))


def test_a_pod_that_is_not_known() -> None:
    """What the container itself tells is there."""
    attribute = attribute_of(Node(machine()), MAIN)
    assert (attribute("pod/name"), attribute("pod/uid"), attribute("labels/app")) == ("web", None, None)
