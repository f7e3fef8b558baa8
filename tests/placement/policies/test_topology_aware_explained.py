"""What `criproxy explain` shows of the pools that were compared for a container."""

from dataclasses import replace

import pytest

from criproxy.errors import NotEnough
from criproxy.model.workload import Container, Sizes
from criproxy.placement.alloc.rank import Candidates
from criproxy.placement.events import ContainerResized
from tests.placement.policies.shapes import n4c16
from tests.placement.policies.tables import shown, shown_resize, text
from tests.placement.policies.test_topology_aware import B, World, asking, policy

LARGE = ("socket 0", "socket 1", "the machine")
NEAR_3 = (frozenset({3}),)
STRICT = {"strict.topologyhints.criproxy.io/pod": "true"}


def world(isolated: str = "") -> World:
    """Four NUMA nodes of four CPUs in two sockets; CPU 0 is reserved, and an owner has two CPUs of node 1."""
    return World(n4c16(isolated=isolated), policy()).come("trader", milli=2000)


def short(candidates: Candidates | None) -> str:
    """The candidates in order, those without room with what they lack."""
    rows = text(candidates).partition(";")[0].replace("*", "")
    return rows.replace("NUMA node ", "n").replace("socket ", "s").replace("the machine", "m")


@pytest.mark.parametrize(
    ("newcomer", "expected", "chosen", "decided"),
    [
        pytest.param(asking("new", 3000), "n2, n3, n0, s1, s0, m, n1 -1 CPU", "NUMA node 2", None, id="alike"),
        pytest.param(
            asking("new", 6000),
            "s1, m, s0 -1 CPU, n0 -3 CPUs, n1 -4 CPUs, n2 -2 CPUs, n3 -2 CPUs",
            "socket 1",
            "its size",
            id="a-socket",
        ),
        pytest.param(asking("new", 2000, B), "n2, n3, n0, n1, s1, s0, m", "NUMA node 2", None, id="shares"),
        pytest.param(
            asking("new", 7500, B),
            "s1, m, s0 -2500m, n0 -4500m, n1 -5500m, n2 -3500m, n3 -3500m",
            "socket 1",
            "its size",
            id="shares-a-socket",
        ),
        pytest.param(
            asking("new", 13001, B),
            "m -1m, s0 -8001m, n0 -10001m, n1 -11001m, s1 -5001m, n2 -9001m, n3 -9001m",
            "the machine",
            None,
            id="overbooked",
        ),
        pytest.param(
            asking("new", 14000),
            "m -1 CPU, s0 -9 CPUs, n0 -11 CPUs, n1 -12 CPUs, s1 -6 CPUs, n2 -10 CPUs, n3 -10 CPUs",
            "",
            None,
            id="refused",
        ),
        pytest.param(
            asking("new", 900, namespace="kube-system"), "the reserved CPUs", "the reserved CPUs", None, id="reserved"
        ),
        pytest.param(
            asking("new", 1500, B, namespace="kube-system"),
            "m, the reserved CPUs -500m",
            "the machine",
            None,
            id="reserved-full",
        ),
    ],
)
def test_candidates(newcomer: Container, expected: str, chosen: str, decided: str | None) -> None:
    """The best first, and then those without room; what tells the first two apart, if anything but their order does."""
    candidates = shown(world().node, newcomer, world().by)

    assert short(candidates) == expected
    assert candidates is not None
    assert candidates.chosen == chosen
    assert (candidates.decided_by and candidates.decided_by.name) == decided


@pytest.mark.parametrize(
    ("newcomer", "annotations", "lacks"),
    [
        pytest.param(
            asking("new", 2000),
            {"require-isolated-cpus.criproxy.io/pod": "true"},
            {"the machine": "1 isolated CPU", "NUMA node 0": "2 isolated CPUs", "NUMA node 3": "1 isolated CPU"},
            id="isolated",
        ),
        pytest.param(
            replace(asking("new", 2000), hints=NEAR_3),
            STRICT,
            dict.fromkeys((*LARGE, "NUMA node 0"), "closeness to its devices"),
            id="owner-near-devices",
        ),
        pytest.param(
            replace(asking("new", 2000, B), hints=NEAR_3),
            STRICT,
            dict.fromkeys((*LARGE, "NUMA node 0"), "closeness to its devices"),
            id="sharer-near-devices",
        ),
    ],
)
def test_what_annotations_ask_for_is_lacking(
    newcomer: Container, annotations: dict[str, str], lacks: dict[str, str]
) -> None:
    """Isolated CPUs where they are required, nearness where it must be."""
    on = world(isolated="15")
    candidates = shown(on.node, newcomer, on.by, annotations)

    assert candidates is not None
    assert lacks.items() <= {row.name: row.lacks for row in candidates.rows}.items()


def test_cpus_that_those_who_share_need_are_no_room() -> None:
    """The machine has the CPUs, but cannot spare them; so has a socket, which has not even enough of them."""
    busy = World(n4c16(), policy()).come("web", milli=9500, qos=B)
    candidates = shown(busy.node, asking("new", 8000), busy.by)

    assert candidates is not None
    lacks = {row.name: row.lacks for row in candidates.rows}
    assert lacks["the machine"] == "3 CPUs that shared containers can spare"
    assert lacks["socket 0"] == "1 CPU"
    assert candidates.chosen == ""


def test_the_machine_lacks_as_many_cpus_as_the_refusal_says() -> None:
    """Those that must stay shared count, also where there would be too few without them."""
    busy = World(n4c16(), policy()).come("big", milli=10_000).come("web", milli=1500, qos=B)
    candidates = shown(busy.node, asking("new", 8000), busy.by)
    with pytest.raises(NotEnough, match="but only 3 are available"):
        busy.come("new", milli=8000)

    assert candidates is not None
    assert {row.name: row.lacks for row in candidates.rows}["the machine"] == "5 CPUs"


def test_a_resize_stays_where_it_is() -> None:
    """That it is already there decides, and is shown as what holds for its pool alone."""
    on = world()
    candidates = shown_resize(on.node, ContainerResized("trader", Sizes(cpu_milli=3000)), on.by)

    assert candidates is not None
    assert candidates.chosen == on.node.grants["trader"].pool == "NUMA node 1"
    assert candidates.decided_by
    assert candidates.decided_by.name == "it is already there"


def test_one_that_runs_stays_near_its_memory() -> None:
    """What grows beyond its NUMA node goes to a part around it, and to no other node."""
    on = world().come("large", milli=4000)
    candidates = shown_resize(on.node, ContainerResized("large", Sizes(cpu_milli=5000)), on.by)

    assert candidates is not None
    assert on.node.grants["large"].pool == "NUMA node 2"
    assert short(candidates).startswith("s1, m, ")
    assert "n3 -the NUMA nodes of its memory" in short(candidates)
    assert "n2 -1 CPU" in short(candidates)
