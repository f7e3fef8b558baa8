"""What `criproxy explain` shows of the parts of the machine from which an owner's CPUs may come."""

import pytest

from criproxy.model.node import Node
from criproxy.model.workload import Sizes
from criproxy.placement.events import ContainerResized
from tests.placement.policies.shapes import n4c16, n4c32
from tests.placement.policies.tables import shown, shown_resize, text
from tests.placement.policies.test_static import MACHINE, container, place, policy

SPARE = "that shared containers can spare"


@pytest.mark.parametrize(
    ("milli", "expected"),
    [
        pytest.param(2000, "*NUMA node 0, NUMA node 1, the machine; it has fewer free CPUs", id="tightest"),
        pytest.param(7000, "*NUMA node 1, the machine, NUMA node 0 -2 CPUs; it has fewer free CPUs", id="with-room"),
        pytest.param(9000, "*the machine, NUMA node 0 -4 CPUs, NUMA node 1 -1 CPU", id="everything"),
        pytest.param(14000, "NUMA node 0 -9 CPUs, NUMA node 1 -6 CPUs, the machine -1 CPU", id="refused"),
        pytest.param(500, "nothing", id="shares"),
    ],
)
def test_parts_of_the_machine(milli: int, expected: str) -> None:
    """The fewest NUMA nodes, and of these the part with the least left over; nothing for one that shares."""
    node = place(Node(MACHINE), container("owner", 2000), policy())

    assert text(shown(node, container("new", milli), policy())) == expected


def test_what_is_chosen_is_where_the_cpus_are() -> None:
    """On a machine of sockets and dies, all of them by name."""
    topology = n4c32()
    candidates = shown(Node(topology), container("new", 6000), policy())
    after = place(Node(topology), container("new", 6000), policy())

    assert text(candidates).startswith("*die 0 of socket 0, die 1 of socket 0, ")
    assert after.grants["new"].exclusive <= topology.dies[0].cpus


def test_preferred_cpus_are_a_criterion() -> None:
    """Where some are better than others."""
    candidates = shown(Node(n4c16(isolated="15")), container("new", 2000), policy(preferIsolatedCPUs=True))

    assert text(candidates).startswith("*NUMA node 3, socket 1, the machine, NUMA node 0, ")
    assert candidates
    four = candidates.between(candidates.rows[0], candidates.rows[3])
    assert four
    assert four.name == "it has more of the CPUs that are preferred"


def test_a_cpu_stays_with_those_who_share() -> None:
    """Without reserved CPUs one is kept, and that is what the machine lacks."""
    candidates = shown(Node(MACHINE), container("new", 16000), policy(""))

    assert text(candidates) == f"NUMA node 0 -8 CPUs, NUMA node 1 -8 CPUs, the machine -1 CPU {SPARE}"


def test_an_owner_keeps_its_cpus() -> None:
    """A resize chooses no part of the machine."""
    node = place(Node(MACHINE), container("owner", 2000), policy())
    grown, refused = (
        shown_resize(node, ContainerResized("owner", Sizes(cpu_milli=milli)), policy()) for milli in (3000, 16000)
    )

    assert (text(grown), text(refused)) == ("*around its own, 1,9", "around its own, 1,9 -1 CPU")
