"""Which decisions have a line in the log."""

from criproxy.engine.decision import Decision
from criproxy.engine.events import PolicyChanged
from criproxy.engine.log_line import log_line
from criproxy.model.node import Node
from criproxy.model.reason import Reason
from criproxy.simulate.machines import machine


def test_a_policy_that_is_looked_at_again_is_no_news() -> None:
    """As after each start with a container that is left alone."""
    node = Node(machine())
    assert log_line(PolicyChanged(), node, Decision(node, reasons=(Reason(None, "it has changed"),))) is None
    line = log_line(PolicyChanged(), node, Decision(node.replace(configuration="b")))
    assert line is not None
    assert line[0] == "policy changed"
