"""What classes and partitions get of caches and memory bandwidth: tables, and laws that hold for any of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.controls import Rdt, RdtAllocation, RdtClass, RdtPartition
from criproxy.model.machine import resctrl
from criproxy.model.machine.resctrl import Bandwidth, Cache, Resctrl, lines, resolve

L3 = Cache(ids=(0, 1), mask=0xFFFFF, least_bits=1)
MACHINE = Resctrl(caches={"L3": L3}, bandwidth=Bandwidth(ids=(0, 1)), groups=16)
CDP = Resctrl(caches={"L3CODE": L3, "L3DATA": L3}, groups=8)
NARROW = Resctrl(caches={"L3": Cache(ids=(0,), mask=0xFF, least_bits=2)}, groups=4)
SPARSE = Resctrl(caches={"L3": Cache(ids=(0,), mask=0xFF, least_bits=1, sparse=True)}, groups=4)
MBPS = Resctrl(bandwidth=Bandwidth(ids=(0,), in_mbps=True), groups=4)
AMD = Resctrl(bandwidth=Bandwidth(ids=(0,), least=1, step=1, unlimited=2048), groups=4)


def shares(*pairs: str) -> tuple[RdtAllocation, ...]:
    """Return allocations from texts such as ``L3=60%`` and ``L3@0,2=0xf``."""
    found = []
    for pair in pairs:
        place, _, share = pair.partition("=")
        resource, _, ids = place.partition("@")
        found.append(RdtAllocation(resource=resource, ids=ids or "all", share=share))
    return tuple(found)


def resolved(machine: Resctrl, *pairs: str, partition: str = "") -> list[str]:
    """Return the lines of a class with these allocations; *partition* is one of the whole machine."""
    partitions = (RdtPartition(name="p", allocations=shares(partition)),) if partition else ()
    one = RdtClass(name="c", allocations=shares(*pairs), partition="p" if partition else "")
    found = resolve(Rdt(classes=(one,), partitions=partitions), machine)
    assert found.mistakes == ()
    return list(lines(found.schemata["c"]))


@pytest.mark.parametrize(
    ("machine", "pairs", "expected"),
    [
        pytest.param(MACHINE, [], ["L3:0=fffff;1=fffff", "MB:0=100;1=100"], id="nothing-asked"),
        pytest.param(MACHINE, ["L3=60%"], ["L3:0=fff;1=fff", "MB:0=100;1=100"], id="percent"),
        pytest.param(MACHINE, ["L3=1%", "MB=1%"], ["L3:0=1;1=1", "MB:0=10;1=10"], id="the-least"),
        pytest.param(MACHINE, ["L3=50-60%"], ["L3:0=e00;1=e00", "MB:0=100;1=100"], id="range"),
        pytest.param(MACHINE, ["L3=4-7"], ["L3:0=f0;1=f0", "MB:0=100;1=100"], id="bits"),
        pytest.param(MACHINE, ["L3=0xf0", "MB=50%"], ["L3:0=f0;1=f0", "MB:0=50;1=50"], id="mask"),
        pytest.param(MACHINE, ["L3@1=0x3", "L3=50%"], ["L3:0=3ff;1=3", "MB:0=100;1=100"], id="one-cache"),
        pytest.param(MACHINE, ["MB=43%"], ["L3:0=fffff;1=fffff", "MB:0=50;1=50"], id="rounded-up-like-the-kernel"),
        pytest.param(CDP, ["L3=50%"], ["L3CODE:0=3ff;1=3ff", "L3DATA:0=3ff;1=3ff"], id="cdp-both"),
        pytest.param(CDP, ["L3=50%", "L3CODE=0x3"], ["L3CODE:0=3;1=3", "L3DATA:0=3ff;1=3ff"], id="cdp-code"),
        pytest.param(MACHINE, ["L3=50%", "L3CODE=0x3"], ["L3:0=3ff;1=3ff", "MB:0=100;1=100"], id="no-cdp"),
        pytest.param(NARROW, ["L3=1%"], ["L3:0=3"], id="at-least-two-bits"),
        pytest.param(NARROW, ["L3=99-100%"], ["L3:0=c0"], id="two-bits-at-the-end"),
        pytest.param(SPARSE, ["L3=0,7"], ["L3:0=81"], id="sparse"),
        pytest.param(MBPS, ["MB=50%", "MB=1000MBps"], ["MB:0=1000"], id="mbps"),
        pytest.param(MBPS, [], [f"MB:0={resctrl.UNLIMITED_MBPS}"], id="mbps-unlimited"),
        pytest.param(AMD, ["MB=50%"], ["MB:0=1024"], id="amd-has-other-units"),
    ],
)
def test_a_class_of_the_whole_machine(machine: Resctrl, pairs: list[str], expected: list[str]) -> None:
    """Its shares are of all bits, and it has everything that it does not limit."""
    assert resolved(machine, *pairs) == expected


@pytest.mark.parametrize(
    ("partition", "pairs", "expected"),
    [
        pytest.param("L3=50%", [], "L3:0=3ff;1=3ff", id="all-of-it"),
        pytest.param("L3=50%", ["L3=50%"], "L3:0=1f;1=1f", id="percent-of-it"),
        pytest.param("L3=0xff00", ["L3=0x3"], "L3:0=300;1=300", id="mask-from-its-lowest-bit"),
        pytest.param("L3=8-15", ["L3=50-100%"], "L3:0=f800;1=f800", id="range-of-it"),
        pytest.param("MB=50%", ["MB=50%"], "L3:0=fffff;1=fffff", id="bandwidth"),
    ],
)
def test_a_class_of_a_partition(partition: str, pairs: list[str], expected: str) -> None:
    """Its shares are parts of its partition."""
    assert resolved(MACHINE, *pairs, partition=partition)[0] == expected


def test_bandwidth_is_a_part_of_that_of_the_partition() -> None:
    """Half of a half is a quarter, rounded up to what the kernel takes."""
    assert resolved(MACHINE, "MB=50%", partition="MB=50%")[1] == "MB:0=30;1=30"


def partitioned(machine: Resctrl, **partitions: str) -> dict[str, str]:
    """Return the first line of a class without shares for each of *partitions*."""
    rdt = Rdt(
        partitions=tuple(RdtPartition(name=name, allocations=shares(share)) for name, share in partitions.items()),
        classes=tuple(RdtClass(name=f"in-{name}", partition=name) for name in partitions),
    )
    found = resolve(rdt, machine)
    assert found.mistakes == ()
    return {name: lines(found.schemata[f"in-{name}"])[0] for name in partitions}


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        pytest.param({"a": "L3=60%", "b": "L3=40%"}, {"a": "L3:0=1f", "b": "L3:0=e0"}, id="everything"),
        pytest.param({"a": "L3=50%"}, {"a": "L3:0=f"}, id="no-more-than-asked"),
        pytest.param(
            {"a": "L3=1%", "b": "L3=98%", "c": "L3=1%"},
            {"a": "L3:0=3", "b": "L3:0=3c", "c": "L3:0=c0"},
            id="the-smallest-get-the-least",
        ),
        pytest.param({"a": "L3=0-3", "b": "L3=0xc0"}, {"a": "L3:0=f", "b": "L3:0=c0"}, id="bits"),
    ],
)
def test_partitions_divide_a_cache(partitions: dict[str, str], expected: dict[str, str]) -> None:
    """None has bits of another one."""
    assert partitioned(NARROW, **partitions) == expected


@pytest.mark.parametrize(
    ("machine", "share", "said"),
    [
        pytest.param(MACHINE, "L2=50%", "resctrl of this machine cannot divide L2; `optional` takes that", id="no-l2"),
        pytest.param(MACHINE, "L3CODE=0xf", "L3CODE needs resctrl mounted with the option cdp", id="no-cdp"),
        pytest.param(MACHINE, "L3@7=0xf", "L3 has no cache 7 on this machine", id="no-such-cache"),
        pytest.param(MACHINE, "L3=0,2", "0,2 has a gap, which this machine does not take", id="gap"),
        pytest.param(NARROW, "L3=0x1", "0x1 has fewer bits than 2, the least of this machine", id="too-few-bits"),
        pytest.param(MACHINE, "L3=18-22", "18-22 is outside of its part of the cache, which has 20 bits", id="outside"),
        pytest.param(MACHINE, "L3=most", "cache ids: 'most' is neither an id nor a range such as 0-3", id="a-word"),
        pytest.param(MACHINE, "L3=101%", "101% is not between 1% and 100%", id="more-than-all"),
        pytest.param(
            MACHINE,
            "MB=1000MBps",
            "MB has only 1000MBps, and resctrl is mounted so that it takes values in %",
            id="unit",
        ),
    ],
)
def test_a_share_that_a_machine_cannot_give_is_said(machine: Resctrl, share: str, said: str) -> None:
    """With the class, the value and what would be right."""
    found = resolve(Rdt(classes=(RdtClass(name="c", allocations=shares(share)),)), machine)

    assert found.mistakes == (f"RDT class c: {said}",)


def test_classes_that_a_machine_cannot_have_are_said() -> None:
    """Of a partition that there is not, or more than there are control groups."""
    many = Rdt(classes=tuple(RdtClass(name=f"c{number}") for number in range(4)))
    full = "4 RDT classes need as many control groups of resctrl; this machine has 3 beside the root group"

    nowhere = Rdt(classes=(RdtClass(name="c", partition="p"),))

    assert resolve(nowhere, MACHINE).mistakes == ("RDT class c: there is no partition 'p'",)
    assert resolve(many, NARROW).mistakes == (full,)


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        pytest.param({"a": "L3=60%", "b": "L3=50%"}, "the partitions ask 110% together", id="more-than-all"),
        pytest.param({"a": "L3=60%", "b": ""}, "all partitions need a share or none; b has none", id="missing"),
        pytest.param(
            {"a": "L3=60%", "b": "L3=0x3"}, "b has bits and a percentages: all need the same kind", id="mixed"
        ),
        pytest.param({"a": "L3=0-3", "b": "L3=3-4"}, "partition b overlaps another one with 3-4", id="overlap"),
        pytest.param({"a": "L3=10-60%"}, "10-60%: a partition takes a percentage, no range of them", id="range"),
        pytest.param(dict.fromkeys("abcde", "L3=20%"), "too few bits for 5 partitions of at least 2", id="too-many"),
    ],
)
def test_partitions_that_do_not_fit_are_said(partitions: dict[str, str], said: str) -> None:
    """Their classes have nothing then, and those of the whole machine what they ask."""
    rdt = Rdt(
        partitions=tuple(
            RdtPartition(name=name, allocations=shares(*filter(None, [share]))) for name, share in partitions.items()
        ),
        classes=(RdtClass(name="broken", partition="a"), RdtClass(name="whole")),
    )

    found = resolve(rdt, NARROW)

    assert found.mistakes == (f"RDT partitions, L3 of cache 0: {said}",)
    assert found.schemata.keys() == {"whole"}


def test_what_is_optional_may_be_missing() -> None:
    """A machine without the cache takes the class without that part."""
    rdt = Rdt(classes=(RdtClass(name="c", allocations=shares("L2=50%", "L3=50%")),), optional=("L2",))

    found = resolve(rdt, NARROW)

    assert found.mistakes == ()
    assert lines(found.schemata["c"]) == ("L3:0=f",)


def test_the_root_group_is_no_group_of_ours() -> None:
    """The class of the root group needs no control group."""
    one = Resctrl(caches=NARROW.caches, groups=1)

    found = resolve(Rdt(classes=(RdtClass(name=resctrl.ROOT_CLASS, allocations=shares("L3=50%")),)), one)

    assert found.mistakes == ()


def test_the_kernels_lines_are_read() -> None:
    """It pads them, and may have resources that have other values."""
    text = "    L3:0=fffff;1=0000f\n    MB:0= 100;1=  10\nSMBA:0=2048;x=1\n"

    assert resctrl.parse_lines(text) == {"L3": {0: 0xFFFFF, 1: 0xF}, "MB": {0: 100, 1: 10}}


PERCENTS = st.integers(1, 100).map(lambda number: f"{number}%")
RANGES = st.tuples(st.integers(0, 100), st.integers(1, 100)).map(lambda pair: f"{min(pair)}-{max(pair)}%")
MASKS = st.integers(1, 0xFFFFF).map(hex)
CACHES = st.builds(
    Cache,
    ids=st.just((0,)),
    mask=st.integers(1, 32).map(lambda bits: (1 << bits) - 1),
    least_bits=st.integers(1, 3),
)


@given(CACHES, st.lists(PERCENTS, min_size=1, max_size=4), st.lists(st.one_of(PERCENTS, RANGES, MASKS), max_size=4))
def test_masks_keep_to_the_rules(cache: Cache, partitions: list[str], classes: list[str]) -> None:
    """Partitions have no bit in common, classes none outside theirs, and each mask is contiguous and long enough."""
    machine = Resctrl(caches={"L3": cache}, groups=99)
    names = [f"p{number}" for number in range(len(partitions))]
    rdt = Rdt(
        partitions=tuple(
            RdtPartition(name=name, allocations=shares(f"L3={share}"))
            for name, share in zip(names, partitions, strict=True)
        ),
        classes=(
            *(RdtClass(name=f"all-of-{name}", partition=name) for name in names),
            *(
                RdtClass(name=f"{name}-{number}", allocations=shares(f"L3={share}"), partition=name)
                for name in names
                for number, share in enumerate(classes)
            ),
        ),
    )

    found = resolve(rdt, machine)

    masks = {name: schemata["L3"][0] for name, schemata in found.schemata.items()}
    whole = [mask for name, mask in masks.items() if name.startswith("all-of-")]
    assert sum(whole) <= cache.mask, "partitions have no bit in common"
    for each in rdt.classes:
        if each.name in masks:
            mask = masks[each.name]
            assert mask & ~masks[f"all-of-{each.partition}"] == 0
            assert mask.bit_count() >= cache.least_bits
            assert "01" not in f"{mask:b}".lstrip("0")
        else:
            assert found.mistakes
