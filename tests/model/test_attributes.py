"""Each cgroup attribute is one row: what holds for every row."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.model import attributes
from criproxy.model.attributes import ATTRIBUTES, FILES, Attribute, as_granted, granted, in_place
from criproxy.model.controls import DEFAULTS, NATURAL, NO_CONTROLS, Controls, as_shown
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, CpuQuota, Grant
from criproxy.model.resources import CfsQuota
from criproxy.model.workload import Container
from criproxy.store.schema import migrate

CONTAINER = Container(key="c", pod="s", name="c", cpu_quota=CfsQuota(200_000))
FILES_SET = Controls(tuple((file, value or "200") for file, value in sorted(DEFAULTS.items())))
LIFTED = Grant(parse_cpuset("1-2"), parse_cpuset("0"), parse_cpuset("1-2"), quota=CpuQuota.LIFTED, controls=FILES_SET)
ELSEWHERE = Applied(parse_cpuset("4"), parse_cpuset("1"), lifted=False, **{row.name: "4096" for row in FILES})

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
    assert len(list(attributes.changes(wanted, other))) == 1
    assert attributes.agrees(LIFTED, wanted, replace(other, **unread))
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
    attributes.QUOTA.create(resources, lifted := True, CONTAINER)
    assert (resources.cpu_quota, resources.cpu_period) == (-1, 50_000)

    attributes.QUOTA.update(resources, not lifted, CONTAINER)
    assert (resources.cpu_quota, resources.cpu_period) == (200_000, 100_000)


def test_a_grant_without_classes_handles_no_file() -> None:
    """So none is read, written or compared."""
    assert not set(attributes.handled(replace(LIFTED, controls=NO_CONTROLS))) & set(FILES)


def test_a_weight_is_put_back_with_the_shares_that_the_kubelet_asked_for() -> None:
    """The runtime makes a weight of them, and writes ``unified`` after it: so both say the same."""
    resources = api.LinuxContainerResources()
    (row,) = [each for each in FILES if each.noun == "cpu.weight"]
    row.update(resources, NATURAL, replace(CONTAINER, cpu_milli=1000))
    assert (resources.cpu_shares, dict(resources.unified)) == (1024, {"cpu.weight": "39"})

    resized = api.LinuxContainerResources(cpu_shares=2048)
    row.update(resized, NATURAL, CONTAINER)
    assert (resized.cpu_shares, dict(resized.unified)) == (2048, {"cpu.weight": "79"})


def test_a_weight_that_was_put_back_is_not_read_but_believed() -> None:
    """Which weight the shares are depends on the runtime; that an update said so must be known."""
    natural = replace(LIFTED, controls=Controls((("cpu.weight", NATURAL),)))
    before, sent = replace(granted(LIFTED), cpu_weight="200"), granted(natural)

    assert not in_place(natural, before)
    assert not in_place(natural, replace(sent, cpu_weight=None))
    assert in_place(natural, as_granted(replace(sent, cpu_weight="39"), natural, sent))
    assert "cpu_weight" not in {row.name for row in attributes.readable(natural)}


def test_nobody_gives_shares_to_an_idle_container() -> None:
    """The kernel refuses a weight for it, and the runtime would write one at each later update."""
    (row,) = [each for each in FILES if each.noun == "cpu.idle"]
    for value, shares in (("1", 0), ("0", 1024)):
        resources = api.LinuxContainerResources(cpu_shares=1024)
        row.create(resources, value, CONTAINER)
        assert (resources.cpu_shares, dict(resources.unified)) == (shares, {"cpu.idle": value})


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        pytest.param("memory.high", "max", "max", id="no-limit"),
        pytest.param("memory.high", "104857601\n", "104857600", id="whole-pages"),
        pytest.param("memory.low", "5000", "4096", id="small-pages"),
        pytest.param("cpu.uclamp.min", "20", "20.00", id="two-digits"),
        pytest.param("cpu.uclamp.max", "100", "max", id="all"),
        pytest.param("io.bfq.weight", "200", "default 200", id="all-devices"),
        pytest.param("io.weight", "default 200\n8:0 50\n", "default 200", id="without-single-devices"),
    ],
)
def test_values_are_compared_as_the_kernel_shows_them(file: str, text: str, expected: str) -> None:
    """Whatever the policy file writes; what is shown stays as it is."""
    assert as_shown(file, text) == as_shown(file, expected) == expected


def test_the_columns_are_those_of_the_table() -> None:
    """In its order: an older criproxy reads them by their position."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        columns = [row[1] for row in connection.execute("PRAGMA table_info(applied)")]

    assert columns == ["key", *(row.name for row in attributes.STORED)]
