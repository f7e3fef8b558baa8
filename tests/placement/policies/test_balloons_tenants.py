"""Who may name which balloon type in an annotation."""

from typing import Any

import pytest

from criproxy.errors import BadAnnotation
from criproxy.placement.policies.balloons import BalloonsOptions
from tests.placement.policies.test_balloons import of_type, world

GOLD = {"name": "gold", "minCPUs": 2, "maxCPUs": 4, "annotationNamespaces": ["finance", "team-*"]}


@pytest.mark.parametrize("namespace", ["finance", "team-a"])
def test_a_namespace_of_the_list_may_name_the_type(namespace: str) -> None:
    """With * and ? as in other lists."""
    node = world(GOLD)
    node.come("pod0", 500, namespace=namespace, **of_type("gold"))
    assert node.pool("pod0") == "gold[0]"


def test_a_pod_of_another_namespace_is_refused_with_a_sentence() -> None:
    """Silently to run elsewhere would be no help to its owner, who asked for something that is there."""
    with pytest.raises(
        BadAnnotation,
        match=r"container shop/pod0/pod0: annotation balloon\.balloons\.criproxy\.io names balloon type 'gold', "
        r"which only pods of the namespaces finance, team-\* may name",
    ):
        world(GOLD).come("pod0", 500, namespace="shop", **of_type("gold"))


def test_it_says_nothing_about_those_that_come_by_themselves() -> None:
    """The option namespaces is nri-plugins': whose containers go into such balloons without an annotation."""
    node = world({**GOLD, "namespaces": ["shop"]})
    node.come("pod0", 500, namespace="shop")
    assert node.pool("pod0") == "gold[0]"
    assert BalloonsOptions.model_validate({"balloonTypes": [GOLD]}).balloon_types[0].namespaces == ()


@pytest.mark.parametrize(
    ("options", "namespace", "pool"),
    [
        pytest.param({}, "shop", "default[0]", id="nobody-by-default"),
        pytest.param({}, "kube-system", "reserved[0]", id="those-that-are-there-anyway"),
        pytest.param({"reservedPoolNamespaces": ["mon*"]}, "monitor", "reserved[0]", id="by-the-option"),
        pytest.param({"annotations": {"allow": {"shop": ["*"]}}}, "shop", "reserved[0]", id="allowed"),
    ],
)
def test_the_reserved_balloon_is_named_only_where_it_is_allowed(
    options: dict[str, Any], namespace: str, pool: str
) -> None:
    """As the reserved pool of the policy pools and prefer-reserved-cpus: its CPUs keep the node alive."""
    node = world(**options)
    node.come("pod0", 500, namespace=namespace, **of_type("reserved"))
    assert node.pool("pod0") == pool
    ignored = any("may not use the balloon type 'reserved'" in reason for reason in node.reasons)
    assert ignored == (pool == "default[0]")


@pytest.mark.parametrize(
    ("group", "namespace", "app", "shares"),
    [
        pytest.param("${pod/labels/app}-${pod/namespace}", "team-a", "x", True, id="same"),
        pytest.param("${pod/labels/app}-${pod/namespace}", "a", "x-team", False, id="label-reaches-into-namespace"),
        pytest.param(":,-pod/labels/app,pod/namespace", "a", "x-team", False, id="joint-key"),
        pytest.param("$pod/namespace", "team-a", "y", True, id="one-key"),
        pytest.param("all", "a", "y", True, id="no-key"),
    ],
)
def test_groups_compare_the_values_of_their_keys(group: str, namespace: str, app: str, *, shares: bool) -> None:
    """And not what they are put together: nobody chooses a label so that it looks like somebody else's namespace."""
    template = f"${{{group}}}" if group.startswith(":") else group
    node = world({"name": "g", "namespaces": ["*"], "groupBy": template, "preferNewBalloons": True, "maxCPUs": 2})
    node.come("pod0", 500, namespace="team-a", labels={"app": "x"})
    node.come("pod1", 500, namespace=namespace, labels={"app": app})
    assert (node.pool("pod0") == node.pool("pod1")) is shares
