"""A class and the sizes of a container give the content of cgroup files, as the kernel shows it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.controls import DEFAULTS
from criproxy.model.machine.controllable import Controllable
from criproxy.model.resources import CfsQuota, Interval
from tests.placement.classes.policy import MIB, asked, rules
from tests.placement.policies.shapes import n4c16

V1 = Controllable(unified=False, v1_burst=True)
EVERYTHING = """
    cpu: {weight: 200, uclampMin: 20, uclampMax: 80, burst: 50%}
    memory: {high: 90%, low: 100%, min: 50%, swapMax: 10%, oomGroup: true}
    blockIO: {weight: 300}
"""


def values(parts: str, machine: Controllable | None = None, **changes: Any) -> dict[str, str]:  # noqa: ANN401 (fields of a container)
    """The values of a container with a class of these parts."""
    text = f"policy: static\nclasses:\n  a:\n    for: {{namespaces: ['*']}}\n{parts}"
    controls, _ = asked(text, machine=machine, **changes)
    assert list(controls.values) == sorted(controls.values)
    return dict(controls.values)


def one(option: str, **changes: Any) -> dict[str, str]:  # noqa: ANN401 (fields of a container)
    """The values of a class with one option such as ``cpu: {weight: 1}``."""
    return values(f"    {option}\n", **changes)


def test_everything_that_the_runtime_writes() -> None:
    """Each file of the table has its value."""
    assert values(EVERYTHING) == {
        "cpu.weight": "200",
        "cpu.uclamp.min": "20.00",
        "cpu.uclamp.max": "80.00",
        "cpu.max.burst": "50000",
        "memory.high": str(90 * MIB),
        "memory.low": str(40 * MIB),
        "memory.min": str(20 * MIB),
        "memory.swap.max": str(10 * MIB),
        "memory.oom.group": "1",
        "io.bfq.weight": "default 300",
    }


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        pytest.param("cpu: {idle: true}", {"cpu.idle": "1"}, id="idle"),
        pytest.param("cpu: {idle: false}", {"cpu.idle": "0"}, id="not-idle"),
        pytest.param("cpu: {uclampMin: 12.5}", {"cpu.uclamp.min": "12.50"}, id="a-part-of-a-percent"),
        pytest.param("cpu: {uclampMin: 99.95}", {"cpu.uclamp.min": "99.95"}, id="the-last-that-is-not-all"),
        pytest.param("cpu: {uclampMin: 99.96}", {"cpu.uclamp.min": "max"}, id="rounded-to-all"),
        pytest.param("cpu: {uclampMax: 100}", {"cpu.uclamp.max": "max"}, id="all"),
        pytest.param("cpu: {uclampMax: 0}", {"cpu.uclamp.max": "0.00"}, id="nothing"),
        pytest.param("cpu: {burst: 33.33%}", {"cpu.max.burst": "33330"}, id="burst"),
        pytest.param("memory: {high: 1Gi}", {"memory.high": str(100 * MIB)}, id="high-is-at-most-the-limit"),
        pytest.param("memory: {high: 50%}", {"memory.high": str(50 * MIB)}, id="high"),
        pytest.param("memory: {min: 1Gi}", {"memory.min": str(100 * MIB)}, id="min-is-at-most-the-limit"),
        pytest.param("memory: {low: 4097}", {"memory.low": "4096"}, id="whole-pages"),
        pytest.param("memory: {swapMax: 0}", {"memory.swap.max": "0"}, id="no-swap"),
        pytest.param("memory: {swapMax: 200Mi}", {"memory.swap.max": str(200 * MIB)}, id="more-swap-than-memory"),
        pytest.param("memory: {oomGroup: false}", {"memory.oom.group": "0"}, id="no-group"),
        pytest.param("rdt: {l3: 50%}", {}, id="nothing-for-the-runtime"),
    ],
)
def test_single_options(option: str, expected: dict[str, str]) -> None:
    """Each is written as the kernel shows it."""
    assert one(option) == expected


@pytest.mark.parametrize(
    ("option", "changes"),
    [
        pytest.param("memory: {high: 90%}", {"memory_limit_bytes": None}, id="high"),
        pytest.param("memory: {high: 90%}", {"memory_limit_bytes": 4096}, id="high-of-one-page"),
        pytest.param("memory: {swapMax: 90%}", {"memory_limit_bytes": None}, id="swap"),
        pytest.param("memory: {low: 90%}", {"memory_request_bytes": None}, id="low"),
        pytest.param("cpu: {burst: 50%}", {"cpu_quota": None}, id="burst"),
    ],
)
def test_a_part_of_nothing_is_no_value(option: str, changes: dict[str, Any]) -> None:
    """Without a limit or a request, the file is left alone."""
    assert one(option, **changes) == {}


def test_sizes_hold_without_a_limit() -> None:
    """A size is no part of anything."""
    assert one("memory: {high: 1Gi, min: 1Mi}", memory_limit_bytes=None) == {
        "memory.high": str(1 << 30),
        "memory.min": str(MIB),
    }


def test_what_the_kernel_cannot_count_is_no_limit() -> None:
    """It shows max for the largest number of pages."""
    assert one("memory: {swapMax: 100%}", memory_limit_bytes=(1 << 63) - 1) == {"memory.swap.max": "max"}


def test_the_least_of_an_interval_of_requests_is_protected() -> None:
    """CRI shows requests of Burstable containers as an interval: no more is protected than was surely asked for."""
    assert one("memory: {min: 100%}", memory_request_bytes=Interval(8 * MIB, 16 * MIB)) == {"memory.min": str(8 * MIB)}


def test_what_cgroup_v1_has() -> None:
    """There, the service writes the burst; no value exists."""
    assert values("    cpu: {burst: 50%}\n", V1) == {}


@pytest.mark.parametrize("machine", [Controllable(), V1], ids=["v2", "v1"])
def test_a_burst_while_cpus_are_idle_is_no_value(machine: Controllable) -> None:
    """The quota itself is lifted, by either version of cgroups; the service has nothing to do."""
    text = "policy: static\nreservedCpus: 0\nclasses: {a: {cpu: {burst: idle}}, b: {cpu: {burst: 5}}}\n"
    parts = rules(text, machine).desired_parts()
    assert values("    cpu: {burst: idle}\n", machine) == {}
    assert parts.idle_bursts == {"a"}
    assert parts.bursts == ({} if machine.unified else {"b": 500})


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"io.weight", "io.bfq.weight"}, {"io.bfq.weight": "default 7"}, id="bfq"),
        pytest.param({"io.weight"}, {"io.weight": "default 7"}, id="iocost"),
        pytest.param(set(), {"io.bfq.weight": "default 7"}, id="none-so-that-it-is-said"),
    ],
)
def test_which_file_has_the_weight(files: set[str], expected: dict[str, str]) -> None:
    """The scheduler's own one, if the machine has it."""
    topology = replace(n4c16(), control_files=frozenset(files))
    assert values("    blockIO: {weight: 7}\n", topology=topology) == expected


@given(
    limit=st.none() | st.integers(1, (1 << 63) - 1),
    request=st.integers(0, 1 << 62),
    percent=st.integers(1, 10_000),
    quota=st.none() | st.integers(1000, 1 << 40),
    page=st.sampled_from([4096, 16_384, 65_536]),
)
def test_no_value_is_beyond_its_limit(
    limit: int | None, request: int, percent: int, quota: int | None, page: int
) -> None:
    """Whatever the sizes: memory within its limit and in whole pages, and the burst within the quota."""
    amount = f"{percent // 100}.{percent % 100:02}%"
    memory = f"memory: {{high: {amount}, low: {amount}, min: {amount}, swapMax: {amount}}}"
    found = values(
        f"    {memory}\n    cpu: {{burst: {amount}}}\n",
        Controllable(page_bytes=page),
        memory_limit_bytes=limit,
        memory_request_bytes=Interval(request, request),
        cpu_quota=CfsQuota(quota) if quota else None,
    )

    assert found.keys() <= DEFAULTS.keys()
    assert ("cpu.max.burst" in found) is (quota is not None)
    assert int(found.get("cpu.max.burst", "0")) <= (quota or 0)
    sizes = {file: int(value) for file, value in found.items() if file.startswith("memory.") and value != "max"}
    assert all(size % page == 0 for size in sizes.values())
    if limit is not None:
        assert all(size <= limit for size in sizes.values())
    else:
        assert sizes.keys() <= {"memory.low", "memory.min"}
    assert sizes.get("memory.high", page) >= page
