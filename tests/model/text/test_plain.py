"""Values as plain data and back."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.cpuset import parse_cpuset
from criproxy.model.machine.topology import CpuKind, Die, MemoryKind, NumaNode, Topology
from criproxy.model.resources import Interval
from criproxy.model.text.plain import from_plain, to_plain
from criproxy.model.workload import Container, ContainerState, Pod, QosClass
from criproxy.simulate.hosts import machine

pods = st.builds(Pod, qos=st.sampled_from(QosClass), labels=st.dictionaries(st.text(), st.text()))
containers = st.builds(
    Container,
    qos=st.sampled_from(QosClass),
    state=st.sampled_from(ContainerState),
    hints=st.lists(st.frozensets(st.integers(0, 9))).map(tuple),
    memory_request_bytes=st.none() | st.builds(Interval),
)
MACHINE = replace(
    machine(nodes=2, cores=2),
    dies=(Die(0, 0, parse_cpuset("0-1")),),
    cpu_kinds=(CpuKind(parse_cpuset("0-3"), 512),),
    isolated_cpus=parse_cpuset("3"),
    nodes=(NumaNode(0, parse_cpuset("0-7"), 1), NumaNode(2, frozenset(), 5, normal_memory=False, kind=MemoryKind.PMEM)),
)


@given(pods | containers)
def test_there_and_back(value: Pod | Container) -> None:
    """Through JSON, a value is the same."""
    assert from_plain(type(value), json.loads(json.dumps(to_plain(value)))) == value


def test_a_machine() -> None:
    """All of it is kept; sets of CPUs are texts, and what has its default is left out."""
    plain = to_plain(MACHINE)

    assert from_plain(Topology, plain) == MACHINE
    assert plain["nodes"][0] == {"id": 0, "cpus": "0-7", "memory_bytes": 1}
    assert (plain["nodes"][1]["kind"], plain["isolated_cpus"]) == ("pmem", "3")
    assert "offline_cpus" not in plain


def test_entries_of_a_later_version() -> None:
    """They are left out."""
    assert from_plain(Pod, {"key": "s", "mood": "good"}) == Pod(key="s")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "Pod must be a dict, not []"),
        ({}, "Pod.key is missing"),
        ({"key": 3}, "Pod.key must be of the kind str, not 3"),
        ({"key": "s", "attempt": True}, "Pod.attempt must be of the kind int, not True"),
        ({"key": "s", "qos": "Best"}, "Pod.qos must be one of Guaranteed, Burstable, BestEffort, not 'Best'"),
        ({"key": "s", "labels": {"a": 1}}, "Pod.labels.a must be of the kind str"),
        ({"key": "s", "labels": []}, "Pod.labels must be a dict"),
    ],
)
def test_what_is_no_value(data: object, said: str) -> None:
    """The error says which part."""
    with pytest.raises(ValueError, match="Pod") as error:
        from_plain(Pod, data)

    assert said in str(error.value)


@pytest.mark.parametrize(
    ("hints", "said"),
    [("1", "hints must be a list"), ([1], r"hints\[0\] must be a str"), (["x"], r"hints\[0\]: 'x' is neither")],
)
def test_what_is_no_set(hints: object, said: str) -> None:
    """Sets of ids are texts in kernel notation, in lists."""
    with pytest.raises(ValueError, match=said):
        from_plain(Container, {"key": "k", "pod": "s", "name": "n", "hints": hints})
