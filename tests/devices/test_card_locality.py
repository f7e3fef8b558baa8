"""Which NUMA nodes a container shall be close to, by the cards that it was given."""

from dataclasses import replace

import pytest

from criproxy.devices.card_locality import hints, locate_cards
from criproxy.devices.classes.builtin import ASCEND, HABANA, NVIDIA
from criproxy.devices.classes.cards import Card, Stock
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.evidence.evidence import Known, weigh
from criproxy.model.cpuset import format_cpuset
from criproxy.model.machine.topology import NumaNode, Topology
from criproxy.simulate.hosts import machine
from tests.devices.fixture import ALI, asked, given

TWO = machine(nodes=2, cores=16, threads=1)
GPUS = Stock(
    (
        Card(0, ("/dev/nvidia0",), "GPU-a", "0000:3b:00.0", numa_node=0),
        Card(1, ("/dev/nvidia1",), "GPU-b", "0000:af:00.0", numa_node=1),
        Card(2, ("/dev/nvidia2",), "GPU-c", "0000:b0:00.0", numa_node=-1, local_cpus=frozenset(range(16, 32))),
        Card(3, ("/dev/nvidia3",), "GPU-d", "0000:b1:00.0", numa_node=-1, local_cpus=frozenset(range(32))),
    )
)
OTHERS = {
    "ascend": Stock(tuple(Card(number, (f"/dev/davinci{number}",), numa_node=number // 2) for number in range(4))),
    "habana": Stock((Card(0, ("/dev/accel/accel0",), numa_node=1),)),
    "ali-npu": Stock((Card(0, ("/dev/npu0",), numa_node=1),)),
}


def near(
    *known: Known, kind: DeviceClass = NVIDIA, devices: tuple[str, ...] = (), cdi: str = "", topology: Topology = TWO
) -> list[str]:
    """The hints of a container with this evidence."""
    create = asked(devices=devices, cdi=(cdi,) if cdi else ())
    stocks = {"nvidia": GPUS, **OTHERS}
    evidence = weigh((kind,), create, known, stocks)
    found = locate_cards((kind,), create, evidence, known, stocks, topology)
    return [format_cpuset(hint) for hint in hints(found)]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        pytest.param("GPU-b", ["1"], id="one"),
        pytest.param("GPU-a::3", ["0"], id="a-share-is-its-card"),
        pytest.param("GPU-b::0,GPU-b::1", ["1"], id="shares-of-one-card-are-one"),
        pytest.param("GPU-a,GPU-b", ["0", "1"], id="several"),
        pytest.param("GPU-c", ["1"], id="by-its-cpus"),
        pytest.param("GPU-d", [], id="close-to-all"),
        pytest.param("GPU-x", [], id="unknown"),
    ],
)
def test_nvidia(ids: str, expected: list[str]) -> None:
    """A hint for each card of which the kernel says where it is."""
    assert near(given(nvidia_com__gpu=ids)) == expected


def test_other_evidence() -> None:
    """CDI names, device nodes and numbers in ids mean cards as well."""
    assert near(cdi="nvidia.com/gpu=GPU-b") == ["1"]
    assert near(cdi="nvidia.com/gpu=all") == []
    assert near(devices=("/dev/nvidia1", "/dev/nvidiactl")) == ["1"]
    assert near(given(huawei_com__Ascend910="Ascend910-1,Ascend910-3"), kind=ASCEND) == ["0", "1"]
    assert near(given(aliyun_com__npu="npu0"), kind=ALI) == ["1"]


def test_ids_that_only_the_plugin_understands() -> None:
    """The nodes in the create tell which card it is; a part of a card, too."""
    assert near(given(habana_ai__gaudi="serial"), kind=HABANA, devices=("/dev/accel/accel0",)) == ["1"]
    part = Known("podresources", {"nvidia.com/mig-1g.5gb": ("MIG-1",)}, complete=True)
    assert near(part, devices=("/dev/nvidia1",)) == ["1"]
    assert near(part) == []


def test_what_the_plugin_told_the_kubelet() -> None:
    """It counts where the kernel says nothing, and not otherwise."""
    told = {"GPU-a::1": frozenset({1}), "GPU-x::0": frozenset({0}), "GPU-d": frozenset({7})}
    known = given(nvidia_com__gpu="GPU-a::1,GPU-x::0,GPU-d")

    assert near(replace(known, near=told)) == ["0", "0"]


def test_nobody_was_given_anything() -> None:
    """Without a card there is nothing to be close to."""
    assert near(given(nvidia_com__gpu="")) == []


def test_memory_of_a_card_is_no_place_for_cpus() -> None:
    """A node without CPUs stands for the nearest one that has some."""
    lone = NumaNode(2, frozenset(), 1 << 34)
    rows = ((10, 20, 40), (20, 10, 17), (40, 17, 10))
    with_lone = replace(TWO, nodes=(*TWO.nodes, lone), mems=frozenset(range(3)), distances=rows)
    card = Card(0, ("/dev/nvidia0",), "GPU-a", numa_node=2)
    known, stocks = given(nvidia_com__gpu="GPU-a"), {"nvidia": Stock((card,))}
    evidence = weigh((NVIDIA,), asked(), [known], stocks)

    found = locate_cards((NVIDIA,), asked(), evidence, [known], stocks, with_lone)

    assert hints(found) == (frozenset({1}),)


def test_sentences() -> None:
    """People read the card, its address and its node."""
    known = given(nvidia_com__gpu="GPU-b,GPU-d")
    evidence = weigh((NVIDIA,), asked(), [known], {"nvidia": GPUS})

    found = locate_cards((NVIDIA,), asked(), evidence, [known], {"nvidia": GPUS}, TWO)
    assert [each.sentence for each in found] == [
        "nvidia: GPU-b (0000:af:00.0) is next to NUMA node 1",
        "nvidia: GPU-d (0000:b1:00.0) is next to no known NUMA node",
    ]
