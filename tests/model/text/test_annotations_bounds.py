"""What is kept of a pod's annotations is bounded."""

import pytest

from criproxy.errors import BadAnnotation
from criproxy.model.node import Node
from criproxy.model.text.annotations import MAX_VALUE_CHARS, policy_annotations
from criproxy.model.workload import Container, Pod
from criproxy.placement.options.annotations import Wishes
from criproxy.simulate.hosts import machine

NAME = "affinity.criproxy.io"


@pytest.mark.parametrize(("chars", "kept"), [(10, 10), (16_384, 16_384), (16_385, 16_385), (250_000, 16_385)])
def test_no_more_of_a_value_is_kept_than_shows_that_it_is_too_long(chars: int, kept: int) -> None:
    """However long it is."""
    assert len(policy_annotations({NAME: "x" * chars})[NAME]) == kept


def test_what_was_cut_is_refused() -> None:
    """It is not read as if the rest had never been written."""
    annotations = policy_annotations({NAME: "a: [b]\n" + "#" * 250_000})
    node = Node(machine(), pods={"s": Pod(key="s", annotations=annotations)})
    container = Container(key="c", pod="s", name="a", namespace="shop", pod_name="web")
    with pytest.raises(BadAnnotation, match=f"it has more than {MAX_VALUE_CHARS} characters$"):
        Wishes(node, container).document("affinity", str)
