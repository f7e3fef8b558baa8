"""Who was given what, by which source."""

from dataclasses import replace

import pytest

from criproxy.devices.classes.builtin import AMD, ASCEND, BUILTIN, INTEL_GPU, NVIDIA
from criproxy.devices.classes.cards import Card, Stock, Stocks
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.evidence.device_request import DeviceRequest
from criproxy.devices.evidence.evidence import Allocation, Given, Known, weigh
from tests.devices.fixture import ALI, NOTHING, STOCKS, asked, given

GPU_A = given(nvidia_com__gpu="GPU-a")


def of(kind: DeviceClass, create: DeviceRequest, *known: Known) -> Allocation:
    """What a container was given of one class."""
    return weigh((kind,), create, known, STOCKS)[kind.name]


def test_sources_come_in_their_order() -> None:
    """The first that knows of a card decides."""
    second = Known("checkpoint", {"nvidia.com/gpu": ("GPU-b",)}, complete=True)

    assert of(NVIDIA, asked(), GPU_A, second) == Allocation(Given.CARDS, ("GPU-a",), "podresources")
    assert of(NVIDIA, asked(), Known("podresources"), second) == Allocation(Given.CARDS, ("GPU-b",), "checkpoint")


@pytest.mark.parametrize(
    ("create", "expected"),
    [
        pytest.param(asked(cdi=("nvidia.com/gpu=GPU-b",)), ("GPU-b",), id="by-uuid"),
        pytest.param(asked(cdi=("nvidia.com/gpu=1",)), ("GPU-b",), id="by-index"),
        pytest.param(asked(cdi=("runtime.nvidia.com/gpu=GPU-new",)), ("GPU-new",), id="card-that-came-later"),
        pytest.param(asked(cdi=("nvidia.com/gpu=0", "nvidia.com/gpu=9")), (), id="one-that-nobody-knows"),
        pytest.param(asked(cdi=("nvidia.com/gpu=all",)), (), id="all"),
    ],
)
def test_cdi_names(create: DeviceRequest, expected: tuple[str, ...]) -> None:
    """They grant, and tell which card where the machine knows it."""
    assert of(NVIDIA, create, NOTHING) == Allocation(Given.CARDS, expected, "cdi")


def test_nodes_grant() -> None:
    """The runtime makes nodes only for device plugins; those that all cards need are no evidence."""
    assert of(NVIDIA, asked(devices=("/dev/nvidia1",)), NOTHING) == Allocation(Given.CARDS, ("GPU-b",), "nodes")
    assert of(ASCEND, asked(devices=("/dev/davinci2",))) == Allocation(Given.CARDS, ("2",), "nodes")
    assert of(NVIDIA, asked(devices=("/dev/nvidiactl",)), NOTHING) == Allocation(Given.NONE, (), "podresources")


def test_a_node_of_another_vendor_is_no_evidence() -> None:
    """AMD's cards and Intel's have the same paths: the card that the machine has there counts."""
    create = asked(devices=("/dev/dri/card1",))

    assert of(AMD, create).given is Given.CARDS
    assert weigh((AMD,), asked(devices=("/dev/dri/card7",)), (), STOCKS)["amd"].given is Given.NONE
    assert of(INTEL_GPU, create) == Allocation(Given.CARDS, ("1",), "nodes")  # a class of which nothing was found


def test_variables_grant_nothing() -> None:
    """One that is there while nobody can tell leaves it open; none at all means that no plugin gave anything."""
    assert of(NVIDIA, asked("NVIDIA_VISIBLE_DEVICES=GPU-b")).given is Given.UNKNOWN
    assert of(NVIDIA, asked("NVIDIA_VISIBLE_DEVICES=GPU-b"), NOTHING).given is Given.NONE
    assert of(NVIDIA, asked("NVIDIA_VISIBLE_DEVICES=void")) == Allocation(Given.NONE, (), "request")
    assert of(NVIDIA, asked("PATH=/bin")) == Allocation(Given.NONE, (), "request")
    assert of(NVIDIA, asked(mounts=("/var/run/nvidia-container-devices/0",))).given is Given.UNKNOWN
    assert of(AMD, asked("AMD_VISIBLE_DEVICES=all")) == Allocation(Given.NONE, (), "request")


def test_an_answer_in_doubt_comes_last() -> None:
    """It limits who asks for cards by a variable, and grants nothing to who asks for none."""
    doubtful, wants = replace(GPU_A, certain=False), "NVIDIA_VISIBLE_DEVICES=all"

    assert of(NVIDIA, asked(wants), doubtful) == Allocation(Given.CARDS, ("GPU-a",), "podresources")
    assert of(NVIDIA, asked(wants), replace(NOTHING, certain=False)) == Allocation(Given.NONE, (), "podresources")
    assert of(NVIDIA, asked(), doubtful) == Allocation(Given.NONE, (), "request")
    assert of(NVIDIA, asked(wants, devices=("/dev/nvidia1",)), doubtful) == Allocation(Given.CARDS, ("GPU-b",), "nodes")


def test_a_source_that_knows_only_some() -> None:
    """What it does not name stays open."""
    known = Known("podresources", {"aliyun.com/npu": ("npu0",)})
    create = asked("NVIDIA_VISIBLE_DEVICES=all")

    evidence = weigh((NVIDIA, ALI), create, [known], STOCKS)

    assert evidence["ali-npu"].ids == ("npu0",)
    assert evidence["nvidia"].given is Given.UNKNOWN


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        ("nvidia", "nvidia.com/gpu.shared"),
        ("nvidia", "nvidia.com/mig-1g.5gb"),
        ("ascend", "huawei.com/Ascend310P"),
        ("amd", "amd.com/gpu"),
        ("intel-gpu", "gpu.intel.com/i915_monitoring"),
        ("intel-npu", "npu.intel.com/accel"),
        ("habana", "habana.ai/gaudi"),
        ("cambricon", "cambricon.com/mlu.smlu.vcore"),
    ],
)
def test_resources_of_the_classes_that_are_built_in(kind: str, resource: str) -> None:
    """Each is served by its class, and by no other."""
    assert [each.name for each in BUILTIN.values() if each.serves(resource)] == [kind]


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
