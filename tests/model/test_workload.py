"""Containers tell who they are."""

import pytest

from criproxy.model.workload import Container


@pytest.mark.parametrize(
    ("container", "title"),
    [
        pytest.param(Container(key="k", pod="s", name="c", pod_name="web", namespace="shop"), "shop/web/c", id="full"),
        pytest.param(Container(key="k", pod="s", name="c"), "c", id="no-kubelet-labels"),
        pytest.param(Container(key="k", pod="s", name=""), "k", id="nameless"),
    ],
)
def test_title(container: Container, title: str) -> None:
    """People see namespace, pod and container, as far as somebody sent them."""
    assert container.title == title


def test_identity_is_that_of_a_retry() -> None:
    """Two creates of the same attempt have one identity, another attempt has another."""
    first = Container(key="r1", pod="s", name="c", attempt=1)

    assert first.identity == Container(key="r2", pod="s", name="c", attempt=1).identity
    assert first.identity != Container(key="r2", pod="s", name="c", attempt=2).identity
