"""What `criproxy explain` shows of the balloons that were compared for a container."""

import pytest

from criproxy.model.workload import Container, QosClass, Sizes
from criproxy.placement.events import ContainerResized
from tests.placement.policies.balloons_world import World
from tests.placement.policies.tables import shown, shown_resize, text
from tests.placement.policies.test_balloons import ANNOTATION, world

LIMIT = "its type allows 2 CPUs"
FULL = "a new two -a place: maxBalloons allows no more than 2"


def newcomer(milli: int, namespace: str = "shop", pod: str = "new") -> Container:
    """A container of a pod."""
    return Container(key="new", pod=pod, name="new", namespace=namespace, qos=QosClass.BURSTABLE, cpu_milli=milli)


def shop(*milli: int) -> World:
    """A type of two balloons of at most two CPUs for the namespace shop, with containers that ask for so much."""
    node = world(
        {"name": "two", "maxCPUs": 2, "maxBalloons": 2, "namespaces": ["shop"]},
        {"name": "three", "maxCPUs": 3},
        {"name": "none", "maxCPUs": -1},
    )
    for number, each in enumerate(milli):
        node.come(f"c{number}", each, namespace="shop")
    return node


@pytest.mark.parametrize(
    ("there", "milli", "expected"),
    [
        pytest.param([], 400, "*two[0]", id="the-first"),
        pytest.param([1500], 400, "*two[0], two[1]; an earlier rule finds it", id="with-room-before-new"),
        pytest.param([1500], 600, f"*two[1], two[0] -100m: {LIMIT}", id="new"),
        pytest.param([1500, 1800], 200, f"*two[0], two[1], {FULL}; it has more room", id="more-room"),
        pytest.param([1500, 1800], 1000, f"two[0] -500m: {LIMIT}, two[1] -800m: {LIMIT}, {FULL}", id="refused"),
        pytest.param([], 2600, f"a new two -600m: {LIMIT}", id="larger-than-allowed"),
    ],
)
def test_balloons_of_a_type(there: list[int], milli: int, expected: str) -> None:
    """Those found sooner come first, then those with more room; others lack what their type does not allow."""
    node = shop(*there)

    assert text(shown(node.node, newcomer(milli), node.policy)) == expected


def test_the_way_in_which_each_is_found_is_told() -> None:
    """The balloon of its pod before one with more room."""
    node = shop(1800, 1500)
    candidates = shown(node.node, newcomer(50, pod="c0"), node.policy)

    assert candidates is not None
    assert [(row.name, row.note) for row in candidates.rows if not row.lacks] == [
        ("two[0]", "its pod is there"),
        ("two[1]", "it has the most room"),
    ]


@pytest.mark.parametrize(
    ("namespace", "annotation", "note", "expected"),
    [
        pytest.param("shop", "", "balloon type two matches it", "*two[0]", id="by-namespace"),
        pytest.param("other", "", "no balloon type but default matches it", "*default[0]", id="default"),
        pytest.param("other", "three", "its pod names the balloon type three", "*three[0]", id="by-annotation"),
        pytest.param("other", "none", "its pod names the balloon type none, whose maxCPUs is -1", "", id="refused"),
    ],
)
def test_the_type_is_told(namespace: str, annotation: str, note: str, expected: str) -> None:
    """And why it is that one."""
    node, annotations = shop(), {ANNOTATION: annotation} if annotation else {}
    candidates = shown(node.node, newcomer(100, namespace), node.policy, annotations)

    assert candidates is not None
    assert (candidates.note, text(candidates)) == (note, expected)


def test_too_few_cpus_are_told() -> None:
    """Where the limit of the type is not what is in the way."""
    node = world({"name": "wide", "namespaces": ["*"], "minCPUs": 3})
    node.come("c0", 13_000)
    candidates = shown(node.node, newcomer(2_500, "default"), node.policy)

    assert text(candidates) == "wide[0] -1 CPU, a new wide -1 CPU"


def test_a_resize_stays_in_its_balloon_or_says_why_not() -> None:
    """No other is looked at while its own can have the size."""
    node = shop(1500)
    grown, moved = (
        shown_resize(node.node, ContainerResized("c0", Sizes(cpu_milli=milli)), node.policy) for milli in (1900, 2500)
    )

    assert text(grown) == "*two[0]"
    assert grown
    assert grown.rows[0].note == "it is already there"
    assert text(moved).endswith(f"-500m: {LIMIT}")
