"""Which decisions have a line in the log."""

from criproxy.model.grant import Reason
from criproxy.model.node import Node
from criproxy.placement.decision import Decision
from criproxy.placement.engine import step
from criproxy.placement.events import PolicyChanged
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.records.history import entries_of
from criproxy.placement.records.log_line import log_line
from criproxy.simulate.hosts import machine


def test_a_policy_that_is_looked_at_again_is_no_news() -> None:
    """As after each start with a container that is left alone."""
    node = Node(machine(), configuration="a")
    assert log_line(PolicyChanged(), node, Decision(node, reasons=(Reason(None, "it has changed"),))) is None
    line = log_line(PolicyChanged(), node, Decision(node.replace(configuration="b")))
    assert line is not None
    assert line[0] == "policy changed"


def test_the_first_policy_of_a_node_is_no_change() -> None:
    """Nothing was in force before, and nobody moves by it."""
    node = Node(machine())
    decision = step(node, PolicyChanged(configuration="a"), NonePolicy(Options()))

    assert log_line(PolicyChanged(configuration="a"), node, decision) is None
    assert decision.node.configuration == "a"
    assert list(entries_of(node, PolicyChanged(configuration="a"), decision)) == []
