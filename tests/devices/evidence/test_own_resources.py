"""The policy file changes while a pod runs: what was allocated to it once still means the same cards."""

from dataclasses import replace

import pytest

from criproxy.devices.classes.builtin import BUILTIN, NVIDIA
from criproxy.devices.classes.cards import Card, Stock, Stocks
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.evidence.evidence import Given, Known, weigh
from tests.devices.fixture import ALI, NOTHING, STOCKS, asked

CLASSES = (*BUILTIN.values(), ALI)
INTEL = {**STOCKS, "intel-gpu": Stock((Card(0, ("/dev/dri/card0",), pci="0000:4d:00.0"),))}
TWICE = tuple(replace(ALI, name=name, per_device=(f"/dev/{name}/npu{{index}}",)) for name in ("one", "other"))
BOTH = {kind.name: Stock((Card(0, (f"/dev/{kind.name}/npu0",)),)) for kind in TWICE}


def cards(
    vgpu: str, *nodes: str, classes: tuple[DeviceClass, ...] = CLASSES, stocks: Stocks = INTEL, known: Known = NOTHING
) -> dict[str, tuple[str, ...]]:
    """The cards by class of a container with a vGPU, as far as our annotation tells them."""
    create = asked(devices=nodes, annotations={"devices.criproxy.io/criproxy.io_npu-8g": vgpu})
    evidence = weigh(classes, create, [known], stocks)
    return {name: each.ids for name, each in evidence.items() if each.given is Given.CARDS}


@pytest.mark.parametrize(
    ("vgpu", "expected"),
    [
        pytest.param("npu0/npu-8g/3", {"ali-npu": ("npu0",)}, id="the-name-of-a-node"),
        pytest.param("npu7/npu-8g/3", {"ali-npu": ("npu7",)}, id="of-a-card-that-is-gone"),
        pytest.param("davinci1/npu-8g/0", {"ascend": ("davinci1",)}, id="a-built-in-class"),
        pytest.param("card0/npu-8g/0", {"intel-gpu": ("card0",)}, id="of-two-classes-the-one-that-has-it"),
        pytest.param("card1/npu-8g/0", {"amd": ("card1",)}, id="and-the-other-one"),
        pytest.param("0000:4d:00.0/npu-8g/0", {"intel-gpu": ("0000:4d:00.0",)}, id="pci"),
        pytest.param("GPU-b/npu-8g/0", {"nvidia": ("GPU-b",)}, id="uuid"),
        pytest.param("MIG-x/npu-8g/0", {"nvidia": ("MIG-x",)}, id="mig"),
        pytest.param("elsewhere/npu-8g/0", {}, id="no-card"),
    ],
)
def test_vgpus_of_a_profile_that_is_gone(vgpu: str, expected: dict[str, tuple[str, ...]]) -> None:
    """The kubelet repeats an old answer of Allocate: the card in the id tells its class."""
    assert cards(vgpu) == expected


def test_a_profile_of_another_class_by_now() -> None:
    """The name of a profile may be that of one of another class today: the card counts, also beside podresources."""
    classes = (replace(NVIDIA, resources=("nvidia.com/gpu", "criproxy.io/*")), ALI)
    known = Known("podresources", {"criproxy.io/npu-8g": ("npu0/npu-8g/3",)}, complete=True)

    assert cards("npu0/npu-8g/3", classes=classes, known=known) == {"ali-npu": ("npu0",)}


@pytest.mark.parametrize("kind", ["one", "other"])
def test_a_card_of_two_classes(kind: str) -> None:
    """Where two classes call a card alike, the device nodes tell; without nodes, the resource does."""
    serving = tuple(replace(each, resources=(f"criproxy.io/{'npu-8g' * (each.name == kind)}",)) for each in TWICE)

    assert cards("npu0/npu-8g/0", f"/dev/{kind}/npu0", classes=TWICE, stocks=BOTH) == {kind: ("npu0",)}
    assert cards("npu0/npu-8g/0", classes=serving, stocks=BOTH) == {kind: ("npu0",)}


@pytest.mark.parametrize(("node", "kind"), [("/dev/npu1", "ali-npu"), ("/dev/davinci1", "ascend")])
def test_a_number(node: str, kind: str) -> None:
    """A number is a name of a card in many classes: the device nodes tell which is meant."""
    assert cards("1/npu-8g/0", node)[kind] == ("1",)


def test_a_machine_that_is_not_known_yet() -> None:
    """While nothing is known of the machine's cards, as while a driver hangs, the form of the name tells."""
    assert cards("npu0/npu-8g/0", stocks={}) == {"ali-npu": ("npu0",)}
