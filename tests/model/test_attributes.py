"""Each cgroup attribute is one row: what holds for every row."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.model.attributes import (
    ATTRIBUTES,
    QUOTA,
    STORED,
    Attribute,
    agrees,
    as_granted,
    changes,
    granted,
    in_place,
)
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, CpuQuota, Grant
from criproxy.model.resources import CfsQuota
from criproxy.model.workload import Container
from criproxy.store.schema import migrate

CONTAINER = Container(key="c", pod="s", name="c", cpu_quota=CfsQuota(200_000))
LIFTED = Grant(parse_cpuset("1-2"), parse_cpuset("0"), parse_cpuset("1-2"), quota=CpuQuota.LIFTED)
ELSEWHERE = Applied(parse_cpuset("4"), parse_cpuset("1"), lifted=False)

each_row = pytest.mark.parametrize("row", ATTRIBUTES, ids=lambda row: row.name)


@each_row
def test_a_written_value_is_reported_and_stored_as_it_is(row: Attribute[Any]) -> None:
    """In a create and in an update alike; and as a column, too."""
    value = getattr(granted(LIFTED), row.name)
    for write in (row.create, row.update):
        resources = api.LinuxContainerResources()
        write(resources, value, CONTAINER)
        assert row.reported(resources) == value
    assert row.from_plain(row.plain(value)) == value


@each_row
def test_another_value_is_out_of_place(row: Attribute[Any]) -> None:
    """One that differs is enough, and the history names it; a value that could not be read says nothing."""
    wanted, unread = granted(LIFTED), dict[str, Any]({row.name: None})
    other = replace(wanted, **{row.name: getattr(ELSEWHERE, row.name)})

    assert not in_place(LIFTED, other)
    assert len(list(changes(wanted, other))) == 1
    assert agrees(LIFTED, wanted, replace(other, **unread))
    assert in_place(LIFTED, wanted)


@pytest.mark.parametrize(
    ("read", "believed", "expected"),
    [(True, ELSEWHERE, True), (None, ELSEWHERE, False), (None, granted(LIFTED), True), (None, None, False)],
)
def test_what_cannot_be_read_is_believed(read: bool | None, believed: Applied | None, expected: bool) -> None:
    """What was sent last counts where the controller's file is missing."""
    assert as_granted(replace(granted(LIFTED), lifted=read), LIFTED, believed).lifted is expected


def test_a_period_comes_back_with_its_quota() -> None:
    """A create leaves the period as it is; an update sends both."""
    resources = api.LinuxContainerResources(cpu_period=50_000)
    QUOTA.create(resources, lifted := True, CONTAINER)
    assert (resources.cpu_quota, resources.cpu_period) == (-1, 50_000)

    QUOTA.update(resources, not lifted, CONTAINER)
    assert (resources.cpu_quota, resources.cpu_period) == (200_000, 100_000)


def test_the_columns_are_those_of_the_table() -> None:
    """In its order: an older criproxy reads them by their position."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        columns = [row[1] for row in connection.execute("PRAGMA table_info(applied)")]

    assert columns == ["key", *(row.name for row in STORED)]
