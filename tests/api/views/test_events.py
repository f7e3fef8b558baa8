"""What happened on the node."""

from dataclasses import replace

import pytest

from criproxy.api.views.events import MAX_EVENTS, to_values
from criproxy.model.node import Node
from criproxy.model.record import Kind, Record
from criproxy.model.workload import Container, Pod
from criproxy.simulate.hosts import machine


def record(at_s: float, key: str = "0a1b", life: str = "r-1") -> Record:
    """One of a container."""
    return Record(at_s, key, "shop/web/main", Kind.UPDATED, ("one", "two"), life, {"cpus": "0-3"})


def test_all_of_an_event() -> None:
    """The keys that docs/status.md documents; without an id where the runtime gave none."""
    (event, unknown) = to_values([record(1.5), record(2.0, "r-1")], 7)["events"]

    assert event == {
        "time": "1970-01-01T00:00:01.500Z",
        "kind": "updated",
        "container": "shop/web/main",
        "pod_uid": "",
        "id": "0a1b",
        "sentences": ["one", "two"],
        "facts": {"cpus": "0-3"},
    }
    assert unknown["id"] == ""


@pytest.mark.parametrize(
    ("since_s", "times_s", "expected"),
    [
        pytest.param(0.0, [1.0, 2.0], ["01", "02"], id="all"),
        pytest.param(2.0, [1.0, 2.0, 3.0], ["02", "03"], id="since"),
        pytest.param(9.0, [1.0, 2.0], [], id="none"),
        pytest.param(0.0, [2.0, 1.0, 3.0], ["01", "02", "03"], id="late-record"),
    ],
)
def test_in_the_order_of_time(since_s: float, times_s: list[float], expected: list[str]) -> None:
    """A record that was written later than others of its time is at its place."""
    values = to_values([record(each) for each in times_s], 7, since_s)

    assert [event["time"][17:19] for event in values["events"]] == expected
    assert (values["last"], values["has_more"]) == (7, False)


@pytest.mark.parametrize(
    ("since_s", "more"),
    [pytest.param(0.0, True, id="full"), pytest.param(1.0, False, id="older-ones-are-not-wanted")],
)
def test_whether_there_are_more(since_s: float, more: bool) -> None:
    """Only if the oldest that was found is wanted, too."""
    assert to_values([record(float(number)) for number in range(MAX_EVENTS)], 7, since_s)["has_more"] is more


def test_the_pod_of_an_event() -> None:
    """By its container while the node has it, otherwise by its name; a name of two pods says nothing."""
    pods = [
        Pod(key="s-1", uid="u-1", namespace="shop", name="web"),
        Pod(key="s-2", uid="u-2", namespace="shop", name="web", stopped=True),
        Pod(key="s-3", uid="u-3", namespace="shop", name="api"),
    ]
    containers = [Container(key="0a1b", pod="s-1", name="main", namespace="shop", pod_name="web")]
    node = Node(
        machine(nodes=1, cores=2, threads=1),
        pods={pod.key: pod for pod in pods},
        containers={each.key: each for each in containers},
    )
    other = replace(record(2.0, "gone"), container="shop/api/main")
    of_node = replace(record(4.0, ""), container="")

    found = to_values([record(1.0), other, record(3.0, "gone"), of_node], 7, node=node)["events"]

    assert [event["pod_uid"] for event in found] == ["u-1", "u-3", "", ""]
