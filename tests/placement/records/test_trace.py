"""Traces: every event that was asked of a node as a line, and back."""

import json
from typing import get_args

import pytest
from hypothesis import given

from criproxy.model.grant import Applied
from criproxy.model.machine.topology import Topology
from criproxy.placement import events as ev
from criproxy.placement.records.trace import KINDS, Header, Traced, asked, header_line, line, parse_header, parse_line
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of
from tests.placement.lives import lives_with_found, machines

POLICY = policy_of("static", {"reservedCpus": "0"})


@given(machines(), lives_with_found)
def test_there_and_back(topology: Topology, life: list[ev.Event]) -> None:
    """Header and events are the same after they were lines."""
    events = [told for event in life for told in asked(event)]

    assert parse_header(header_line(Header(topology, "static", "now", "1"))) == Header(topology, "static", "now", "1")
    for event in events:
        assert parse_line(line(Traced(1.5, event, "no room"))) == Traced(1.5, event, "no room")


def test_what_a_trace_has() -> None:
    """Everything that was asked; not what was seen of our own updates, or what somebody did to the node."""
    assert {kind.__name__ for kind in get_args(ev.WorkloadEvent)} - KINDS.keys() == {"UpdateApplied"}
    assert "TopologyChanged" in KINDS
    for event in (ev.UpdateApplied("k", Applied(frozenset(), frozenset())), ev.Released("x")):
        assert not list(asked(event))
    assert list(asked(ev.ContainerCreated("r", "k"))) == [ev.ContainerCreated("r", "k")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "the line is not JSON"),
        ("[]", "the line must be an object"),
        ('{"at": 1}', "there is no event None; events are: PodCreated"),
        ('{"at": 1, "event": "Released"}', "there is no event 'Released'"),
        ('{"event": "PodGone", "key": "s"}', "'at' must be seconds"),
        ('{"at": 1, "event": "PodGone"}', "PodGone.key is missing"),
    ],
)
def test_lines_that_are_none(text: str, said: str) -> None:
    """Each is an error with a sentence."""
    with pytest.raises(ValueError, match=r"event|line|missing|at") as error:
        parse_line(text)

    assert said in str(error.value)


def test_another_version() -> None:
    """It is not read."""
    header = json.loads(header_line(Header(machine()))) | {"criproxy_trace": 2}

    with pytest.raises(ValueError, match="not a trace of version 1: 'criproxy_trace' is 2"):
        parse_header(json.dumps(header))


def test_a_changed_machine() -> None:
    """CPUs that come and go are in a trace, too."""
    event = ev.TopologyChanged(machine(nodes=2))

    assert parse_line(line(Traced(0.0, event))).event == event
