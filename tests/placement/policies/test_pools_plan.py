"""Pools get their CPUs from the policy file and the machine, always the same."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.placement.policies.pools import PoolsOptions
from criproxy.placement.policies.pools.plan import Plan, make_plan
from lab.properties.machines import machines
from tests.placement.policies.pools_files import pools_options
from tests.placement.policies.shapes import n4c16

SINGLE, DUAL = {"name": "one", "cpu": 1, "instances": "3 CPUs"}, {"name": "two", "cpu": 2, "instances": "50 %"}


def plan_of(options: PoolsOptions, topology: Topology) -> Plan:
    """The pools by *options* on the part of a machine that these use."""
    usable = options.usable(topology)
    return make_plan(options.pools, options.reserved(usable), usable)


def planned(options: PoolsOptions, topology: Topology | None = None) -> str:
    """The CPUs of each pool."""
    return "; ".join(
        f"{each.name} {format_cpuset(each.cpus)}" for each in plan_of(options, topology or n4c16()).instances
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(
            pools_options(SINGLE, DUAL, available="cpuset:2-15", reserved="cpuset:15"),
            "reserved 15; default 5,12-14; one[0] 2; one[1] 3; one[2] 4; two[0] 6-7; two[1] 8-9; two[2] 10-11",
            id="podpools-test01",
        ),
        pytest.param(
            pools_options({"name": "one", "cpu": 1, "instances": "100 %"}, available="cpuset:12-15", reserved=1),
            "reserved 12; default 12; one[0] 13; one[1] 14; one[2] 15",
            id="the-default-pool-is-the-reserved-one",
        ),
        pytest.param(
            pools_options({"name": "default", "cpu": 3}, DUAL | {"instances": "100%"}, reserved="cpuset:0"),
            "reserved 0; default 1-3; two[0] 4-5; two[1] 6-7; two[2] 8-9; two[3] 10-11; two[4] 12-13; two[5] 14-15",
            id="podpools-test07-default-of-its-own",
        ),
        pytest.param(
            pools_options({"name": "half", "cpu": "50 %"}, {"name": "rest", "cpu": "25%"}),
            "reserved 12-15; default 12-15; half[0] 0-7; rest[0] 8-11",
            id="shares-of-the-node",
        ),
        pytest.param(
            pools_options({"name": "big", "cpu": 6}, {"name": "small", "cpu": 2}, reserved="cpuset:1"),
            "reserved 1; default 0,10-15; big[0] 2-7; small[0] 8-9",
            id="more-than-a-node",
        ),
        pytest.param(
            pools_options({"name": "own", "cpuLists": [{"cpuset": "4-5", "socket": 0}, {"cpuset": "8"}]}, reserved=1),
            "reserved 0; default 1-3,6-7,9-15; own[0] 4-5; own[1] 8",
            id="lists",
        ),
        pytest.param(
            pools_options({"name": "reserved", "cpu": 2}, {"name": "four", "cpu": 4}),
            "reserved 0-1; default 2-3,8-15; four[0] 4-7",
            id="reserved-by-number",
        ),
        pytest.param(
            pools_options({"name": "reserved", "cpuLists": [{"cpuset": "14-15"}]}, {"name": "four", "cpu": 4}),
            "reserved 14-15; default 4-13; four[0] 0-3",
            id="reserved-by-list",
        ),
        pytest.param(
            pools_options({"name": "all", "cpu": 16}),
            "reserved 0-15; default 0-15; all[0] 0-15",
            id="nothing-left-for-the-default-pool",
        ),
    ],
)
def test_who_has_which_cpus(options: PoolsOptions, expected: str) -> None:
    """In the order of the file each takes the first place with room; what is left is for everybody."""
    assert planned(options) == expected


def test_isolated_cpus_are_for_lists_only() -> None:
    """The kernel balances nobody there: only who names them gets them."""
    topology = replace(n4c16(), isolated_cpus=parse_cpuset("8-9,12"))
    options = pools_options({"name": "rt", "cpuLists": [{"cpuset": "8"}]}, {"name": "all", "cpu": "100 %"})

    others = "0-7,10-11,13-15"
    assert planned(options, topology) == f"reserved {others}; default {others}; rt[0] 8; all[0] {others}"


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        pytest.param(
            {"name": "x", "cpu": 17},
            "pools.0: there is no room for 'x': it asks for 17 CPUs, but 15 of 15 are left",
            id="larger-than-the-machine",
        ),
        pytest.param(
            {"name": "x", "cpu": 4, "instances": 4},
            "pools.0: there is no room for 'x': it asks for 4 pools of 4 CPUs, but 3 of 15 are left, and 3 fit",
            id="one-too-many",
        ),
        pytest.param(
            {"name": "x", "cpu": 8, "instances": "40 %"},
            "pools.0: there is no room for 'x': 40 % of 15 CPUs is less than one pool of 8 CPUs",
            id="a-share-that-is-too-small",
        ),
        pytest.param(
            {"name": "x", "cpuLists": [{"cpuset": "15-17"}]},
            "pools.0.cpuLists.0.cpuset: CPUs 16-17 are not online in this machine, which has 0-15",
            id="unknown-cpus",
        ),
        pytest.param(
            {"name": "x", "cpuLists": [{"cpuset": "0-1"}]},
            "pools.0.cpuLists.0.cpuset: CPU 0 is reserved",
            id="reserved-cpus",
        ),
        pytest.param(
            {"name": "x", "cpuLists": [{"cpuset": "7-8", "socket": 1}]},
            "pools.0.cpuLists.0.socket: CPU 7 is not in socket 1",
            id="another-socket",
        ),
        pytest.param(
            {"name": "reserved", "cpu": 2},
            "pools.0: the reserved CPUs are 0: leave out the size of this pool",
            id="reserved-twice",
        ),
        pytest.param({"name": "x", "cpu": 4, "instances": "100 %"}, None, id="as-many-as-fit"),
    ],
)
def test_what_a_machine_has_not(pool: dict[str, object], said: str | None) -> None:
    """`criproxy check` tells what does not fit, with its place."""
    misfits = pools_options(pool, reserved="cpuset:0").misfits(n4c16())

    assert [f"{'.'.join(map(str, path))}: {text}" for path, text in misfits] == ([said] if said else [])


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        pytest.param([SINGLE, SINGLE], "pools.1.name: there are two pools 'one'", id="two-of-a-name"),
        pytest.param([{"name": "x"}], "pools.0: pool 'x' has no size", id="no-size"),
        pytest.param([{"name": "x", "cpu": 0}], "pools.0.cpu: must be at least one CPU", id="no-cpu"),
        pytest.param(
            [{"name": "x", "cpu": 1, "cpuLists": [{"cpuset": 1}]}], "pools.0.cpu: means the same", id="two-sizes"
        ),
        pytest.param(
            [{"name": "x", "cpuLists": [{"cpuset": "1-3"}]}, {"name": "y", "cpuLists": [{"cpuset": "3-4"}]}],
            "pools.1.cpuLists.0.cpuset: CPU 3 is also in pool 'x[0]'",
            id="overlap",
        ),
        pytest.param(
            [DUAL | {"fillOrder": "Packed"}], "pools.0.fillOrder: all but the first pool 'two' stay empty", id="packed"
        ),
        pytest.param([{"name": "default", "cpu": 2, "instances": 2}], "pools.0.instances: there is one", id="default"),
        pytest.param([{"name": "default", "exclusive": True}], "pools.0.exclusive: the pool", id="exclusive-default"),
        pytest.param([SINGLE | {"instances": 0}], "pools.0.instances: must be at least one", id="none"),
    ],
)
def test_contradictions(pools: list[dict[str, object]], said: str) -> None:
    """What no machine can give needs none to be found."""
    (path, text), *more = pools_options(*pools).contradictions()

    assert f"{'.'.join(map(str, path))}: {text}".startswith(said)
    assert more == []


def test_pools_that_nobody_may_name() -> None:
    """Only the annotation leads into one: it has to be allowed somewhere; reserved and default are for all others."""
    pools = [{"name": "x", "cpu": 2}, {"name": "default", "cpu": 2}]
    nobody, somebody = (
        PoolsOptions.model_validate({"pools": pools, "annotations": {"allow": {"team": [key]}}})
        for key in ("memory-type", "pool.*")
    )

    assert [*nobody.contradictions()] == [
        (("pools", 0, "name"), "no container can get this pool: permit pool.podpools in annotations.allow")
    ]
    assert not [*somebody.contradictions()]


def test_pools_as_static_pools_writes_them() -> None:
    """By name, with lists of CPUs."""
    by_name = {"exclusive": {"exclusive": True, "cpuLists": [{"cpuset": "8,9", "socket": 1}]}, "shared": {"cpu": 2}}
    options = PoolsOptions.model_validate({"pools": by_name})

    assert [pool.name for pool in options.pools] == ["exclusive", "shared"]
    assert list(options.contradictions()) == []


@given(machines(), st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), max_size=4), st.integers(0, 3))
def test_no_cpu_is_in_two_pools(topology: Topology, sizes: list[tuple[int, int]], reserved: int) -> None:
    """Whatever the machine; and every pool that is there has a CPU."""
    kinds = [{"name": f"p{place}", "cpu": cpu, "instances": count} for place, (cpu, count) in enumerate(sizes)]
    plan = plan_of(pools_options(*kinds, reserved=reserved), topology)
    own = [instance for instance in plan.instances if instance.name not in ("reserved", "default")]

    assert all(instance.cpus for instance in plan.instances)
    assert frozenset().union(*(instance.cpus for instance in plan.instances)) <= topology.cpus
    assert sum(len(instance.cpus) for instance in own) == len(frozenset().union(*(each.cpus for each in own)))
    assert all(len(instance.cpus) == instance.kind.cpu.number for instance in own if instance.kind.cpu)
