"""Who was given what, by which source."""

from dataclasses import replace

import pytest

from criproxy.devices.classes.builtin import AMD, ASCEND, BUILTIN, INTEL_GPU, NVIDIA
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
