"""The end of a cold start: the container is warm from then on, and the policy places it anew."""

from dataclasses import dataclass, replace

from criproxy.errors import NotEnough
from criproxy.model.grant import Change, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement import events as ev
from criproxy.placement.engine import step
from criproxy.simulate.hosts import machine

MACHINE = machine(nodes=2)


@dataclass
class ColdFirst:
    """Memory of node 1 for the cold, of all nodes for the warm."""

    refuses_warm: bool = False

    def place(self, node: Node, container: Container) -> Change:
        """All CPUs."""
        if container.warm and self.refuses_warm:
            raise NotEnough("no memory is left")
        mems = node.topology.mems if container.warm else frozenset({1})
        return Change({container.key: Grant(node.topology.cpus, mems)}, ("it is placed",))

    def release(self, node: Node, left: Grant) -> Change:
        """Nobody moves."""
        return Change({})


def running(policy: ColdFirst) -> Node:
    """A node with one container that has just started."""
    node = Node(MACHINE)
    newcomer = Container(key="r", pod="s", name="cold")
    for event in (ev.ContainerCreating(newcomer), ev.ContainerCreated("r", "id"), ev.ContainerStarted("id")):
        node = step(node, event, policy).node
    return node


def test_it_gets_its_other_memory_once() -> None:
    """The container is updated with the memory of a warm one; a second end changes nothing."""
    cold = running(ColdFirst())

    decision = step(cold, ev.ColdStartEnded("id"), ColdFirst())

    assert frozenset({1}) == cold.grants["id"].mems
    assert [("id", MACHINE.mems)] == [(update.key, update.grant.mems) for update in decision.updates]
    assert decision.node.containers["id"].warm
    assert step(decision.node, ev.ColdStartEnded("id"), ColdFirst()).node is decision.node


def test_one_that_cannot_be_placed_anew_stays_where_it_is() -> None:
    """A refusal leaves its place as it is, and says so."""
    cold = running(ColdFirst())

    decision = step(cold, ev.ColdStartEnded("id"), ColdFirst(refuses_warm=True))

    assert cold.grants == decision.node.grants
    assert not decision.updates
    assert decision.sentences == ("cold stays after its cold start: no memory is left",)


def test_who_is_not_there_or_left_alone_is_not_placed() -> None:
    """Nobody, one that has exited and one without a place get none."""
    cold = running(ColdFirst())
    exited = step(cold, ev.ContainerExited("id"), ColdFirst()).node
    alone = replace(cold, grants={})

    assert step(cold, ev.ColdStartEnded("nobody"), ColdFirst()).node is cold
    assert step(exited, ev.ColdStartEnded("id"), ColdFirst()).node is exited
    assert not step(alone, ev.ColdStartEnded("id"), ColdFirst()).node.grants
