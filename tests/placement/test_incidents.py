"""What a device plugin reports of cards: it is part of the node's state, and moves no container."""

from dataclasses import replace

from criproxy.model.incident import Action, Incident, Use
from criproxy.model.node import Node
from criproxy.placement.engine import step
from criproxy.placement.events import CardReported
from criproxy.simulate.hosts import machine
from tests.node.world import STATIC

LOST = Incident(device_class="nvidia", card="GPU-a", since_s=12.5, reason="XID 79", action=Action.STOP)
EMPTY = Node(machine(nodes=1, cores=4, threads=1))


def reported(node: Node, incident: Incident) -> Node:
    """The node after a report."""
    decision = step(node, CardReported(incident.key, incident), STATIC)
    assert not decision.updates
    return decision.node


def test_reports_are_remembered() -> None:
    """Each incident of a card is one entry; what is reported again changes it, and the same changes nothing."""
    node = reported(EMPTY, LOST)
    later = replace(LOST, since_s=99.0)
    stopped = LOST.with_uses({"r-1": Use.STOPPED})

    assert node.incidents == {"nvidia/GPU-a/12.500": LOST}
    assert reported(node, LOST) is node
    assert reported(reported(node, stopped), later).incidents == {LOST.key: stopped, later.key: later}


def test_incidents_are_forgotten() -> None:
    """One without a value is not there any more; of an unknown one nothing was there."""
    node = reported(EMPTY, LOST)

    assert not step(node, CardReported(LOST.key, None), STATIC).node.incidents
    assert step(node, CardReported("other", None), STATIC).node is node


def test_what_people_read() -> None:
    """The sentence is reason and card."""
    assert LOST.sentence == "XID 79; GPU-a"
