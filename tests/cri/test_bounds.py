"""Numbers and texts at the limits of CRI are read as something that the model, the store and people can have."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cri import api_pb2 as api
from criproxy.cri import sizes, translate
from criproxy.cri.stamp import ANNOTATION, Stamp, read_stamp
from criproxy.model.resources import LIFTED_US, MAX_MACHINE_MILLI
from criproxy.model.workload import Container, QosClass

INT64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from(
    [0, 1, -1, 1 << 31, 1 << 44, 1 << 62, (1 << 63) - 1, -(1 << 63), LIFTED_US]
)
CAPACITY = 1 << 50
PARENTS = st.sampled_from(["", "/kubepods/pod1", "/kubepods/burstable/pod1", "/kubepods/besteffort/pod1"])


def numbers(value: object) -> Iterator[int]:
    """All numbers within a value of the model."""
    if isinstance(value, int):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from numbers(getattr(value, field.name))


def storable(value: object) -> bool:
    """Whether SQLite takes each number, and none is negative."""
    database = sqlite3.connect(":memory:")
    try:
        for number in numbers(value):
            database.execute("SELECT ?", (number,))
    finally:
        database.close()
    return all(number >= 0 for number in numbers(value))


@st.composite
def resources(draw: st.DrawFn) -> api.LinuxContainerResources:
    """Any that a message can say."""
    return api.LinuxContainerResources(
        cpu_shares=draw(INT64),
        cpu_quota=draw(INT64),
        cpu_period=draw(INT64),
        memory_limit_in_bytes=draw(INT64),
        oom_score_adj=draw(INT64),
    )


@given(asked=resources(), again=resources(), parent=PARENTS)
def test_any_sizes_can_be_kept(
    asked: api.LinuxContainerResources, again: api.LinuxContainerResources, parent: str
) -> None:
    """Of a create and of a resize; a limit beyond the largest machine is that of the largest machine."""
    request = api.CreateContainerRequest()
    request.config.metadata.attempt = (1 << 32) - 1
    request.config.linux.resources.CopyFrom(asked)
    request.sandbox_config.linux.cgroup_parent = parent
    found = translate.container(request, "r", CAPACITY)
    resized = found.resized(sizes.sizes_after(again, found, CAPACITY))
    for container in (found, resized):
        assert storable(container)
        assert storable(container.asked_quota)
        assert (container.cpu_limit_milli or 0) <= MAX_MACHINE_MILLI
        assert container.cpu_milli <= MAX_MACHINE_MILLI


def test_a_quota_beyond_all_machines_is_a_limit_of_the_largest() -> None:
    """The container starts: its limit limits nothing, which is what the runtime would make of it."""
    asked = api.LinuxContainerResources(cpu_quota=1 << 62, cpu_period=1)
    found = sizes.sizes_after(asked, Container(key="c", pod="s", name="c"))
    assert found.cpu_limit_milli == MAX_MACHINE_MILLI


STAMPED = st.fixed_dictionaries(
    {"reservation": st.text(max_size=40), "qos": st.sampled_from([*(q.value for q in QosClass), "", "x" * 300])},
    optional={
        field.name: st.integers() | INT64 | st.booleans() | st.none() | st.text(max_size=5)
        for field in fields(Stamp)
        if field.name not in ("reservation", "qos")
    },
)


@given(stamp=STAMPED, now=resources())
def test_any_stamp_can_be_kept(stamp: dict[str, object], now: api.LinuxContainerResources) -> None:
    """Whoever wrote it: numbers beyond what we write are cut, and texts can be written down again."""
    item = api.Container(id="c", annotations={ANNOTATION: json.dumps(stamp)})
    reply = api.ContainerStatusResponse()
    reply.status.resources.linux.CopyFrom(now)
    found = translate.found_container(item, reply, CAPACITY)
    assert storable(found)
    assert storable(found.asked_quota)
    found.reservation.encode()
    json.dumps(translate.stamp_of(found).to_text(), ensure_ascii=False).encode()


@pytest.mark.parametrize("number", [1 << 63, 1 << 70, -1, -(1 << 70)])
def test_every_number_of_a_stamp_is_one_that_can_be_kept(number: int) -> None:
    """No field is left out: whoever reads it may store it, or add it to others."""
    names = [field.name for field in fields(Stamp) if type(getattr(Stamp("r", "q"), field.name)) is int]
    assert "pod_cpu_milli" in names
    for name in names:
        text = json.dumps({"reservation": "r", "qos": "Guaranteed", name: number})
        stamp = read_stamp({ANNOTATION: text})
        assert stamp is not None
        assert storable(stamp)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 200_000, id="nested"),
        pytest.param(json.dumps({"reservation": "\ud800", "qos": "Guaranteed"}), id="half-a-character"),
        pytest.param(json.dumps({"reservation": "x" * 1000, "qos": "Guaranteed"}), id="long"),
        pytest.param(json.dumps({"reservation": "", "qos": "Guaranteed"}), id="empty"),
        pytest.param('{"reservation": "r", "qos": "Guaranteed", "cpu_milli": ' + "9" * 5000 + "}", id="digits"),
    ],
)
def test_what_we_never_write_is_no_stamp(text: str) -> None:
    """Somebody else's annotation of that name is as good as none."""
    assert read_stamp({ANNOTATION: text}) is None
