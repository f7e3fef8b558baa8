"""vGPUs in the device plugin: cards that profiles cut, what is left of the others, and what a container gets."""

from dataclasses import replace

import pytest

from criproxy.deviceplugin.cards.card_offers import Configuration, Pins
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.nvidia.resources import ResourceError
from criproxy.deviceplugin.resources.resource_builder import build_resources
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.offers import SharedCards
from criproxy.devices.classes.vgpu_profiles import CardChoice, Profile, Quota, quota_in
from criproxy.devices.evidence.device_request import InvalidRequest
from criproxy.devices.plugin.plan import NVIDIA_ALONE, Advertised, PluginPlan
from tests.deviceplugin.hosts import a100, t4
from tests.deviceplugin.nvidia.files import config_of
from tests.deviceplugin.resources.test_resource_builder import ALI, NPU, gpus, ids, npus

GPU_8G = Profile(name="gpu-8g", kind=NVIDIA.name, memory_mib=8192, cores_percent=25)
HALF = Profile(name="half", kind=ALI.name, memory_mib=1024, cores_percent=50, count=2)
SHARED = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}"


def two_gpus() -> Inventory:
    """Two T4s with 16384 MiB each."""
    return gpus(*(replace(t4(index), uuid=uuid, memory_mib=16384) for index, uuid in enumerate(("GPU-a", "GPU-b"))))


def of_nvidia(*profiles: Profile, text: str = "version: v1") -> Configuration:
    """NVIDIA's cards with these profiles."""
    return Configuration(plan=replace(NVIDIA_ALONE, profiles=profiles), nvidia=config_of(text))


def of_ali(*profiles: Profile, sharing: tuple[SharedCards, ...] = ()) -> Configuration:
    """NPUs with these profiles."""
    plan = PluginPlan(advertised=(Advertised(kind=ALI, resource=NPU),), profiles=profiles, sharing=sharing)
    return Configuration(plan=plan)


def test_vgpus_know_as_what_their_cards_were_offered() -> None:
    """Whoever has such a card is found, also after a start with another file."""
    assert "nvidia.com" in build_resources(of_nvidia(GPU_8G), two_gpus()).resources[GPU_8G.resource].domains


@pytest.mark.parametrize(
    ("text", "remaining"),
    [
        pytest.param("version: v1", ["GPU-a"], id="whole"),
        pytest.param(SHARED, ["GPU-a::0", "GPU-a::1"], id="shared-by-nvidias-file"),
    ],
)
def test_a_card_that_is_not_chosen_is_offered_as_before(text: str, remaining: list[str]) -> None:
    """Profiles take away only the cards that they choose."""
    found = build_resources(of_nvidia(replace(GPU_8G, select=CardChoice(ids=("GPU-b",))), text=text), two_gpus())
    assert ids(found) == {"nvidia.com/gpu": remaining, "criproxy.io/gpu-8g": ["GPU-b/gpu-8g/0", "GPU-b/gpu-8g/1"]}


def test_other_classes_are_cut_by_a_number() -> None:
    """An NPU, whose memory nobody knows, has as many parts as the profile says; other NPUs can be shared."""
    found = build_resources(
        of_ali(replace(HALF, select=CardChoice(indexes=(0,))), sharing=(SharedCards(name=NPU, replicas=2),)), npus(0, 0)
    )
    assert ids(found) == {NPU: ["npu1::0", "npu1::1"], "criproxy.io/half": ["npu0/half/0", "npu0/half/1"]}


def test_a_container_gets_its_card_with_the_quota() -> None:
    """Allocate gives the card itself, the id of the part, and the quota as the container's annotations."""
    gpu = build_resources(of_nvidia(GPU_8G, text=SHARED), two_gpus()).resources["criproxy.io/gpu-8g"]
    response = gpu.allocation(["GPU-b/gpu-8g/1"])
    assert response.envs == {"NVIDIA_VISIBLE_DEVICES": "GPU-b"}
    assert response.annotations["devices.criproxy.io/criproxy.io_gpu-8g"] == "GPU-b/gpu-8g/1"
    assert quota_in(response.annotations) == Quota(profile="gpu-8g", memory_mib=8192, cores_percent=25)

    npu = build_resources(of_ali(HALF), npus(0)).resources["criproxy.io/half"]
    response = npu.allocation(["npu0/half/0"])
    assert [node.host_path for node in response.devices] == ["/dev/npu0"]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        pytest.param(["GPU-a/gpu-8g/0", "GPU-a/gpu-8g/1"], "a container can have one vGPU; found 2", id="two"),
        pytest.param([], "a container can have one vGPU; found 0", id="none"),
        pytest.param(["GPU-a/gpu-8g/2"], "unknown device: GPU-a/gpu-8g/2", id="unknown"),
    ],
)
def test_a_container_has_one_vgpu(asked: list[str], text: str) -> None:
    """Several vGPUs for one container, or unknown ones, are refused, and nothing is given."""
    gpu = build_resources(of_nvidia(GPU_8G), two_gpus()).resources["criproxy.io/gpu-8g"]
    with pytest.raises(InvalidRequest, match=text):
        gpu.allocation(asked)


def test_the_card_with_most_room_is_preferred() -> None:
    """The kubelet is told to take a vGPU of the card of which the fewest are in use."""
    gpu = build_resources(of_nvidia(GPU_8G), two_gpus()).resources["criproxy.io/gpu-8g"]
    free = ["GPU-a/gpu-8g/1", "GPU-b/gpu-8g/0", "GPU-b/gpu-8g/1"]
    assert gpu.preference is not None
    assert gpu.preference(free, [], 1) == ("GPU-b/gpu-8g/0",)


def test_a_contradiction_ends_a_start_and_is_a_warning_later() -> None:
    """A file that contradicts the cards is refused; where a card changes later, that card is offered in no way."""
    config = of_nvidia(replace(GPU_8G, count=3, select=CardChoice(indexes=(0,))))
    sentence = r"card GPU-a has 16384 MiB, but 3 x gpu-8g \(8192 MiB and 25 % of the cores\) need 24576 MiB"
    with pytest.raises(ResourceError, match=sentence):
        build_resources(config, two_gpus(), strict=True)
    found = build_resources(config, two_gpus())
    assert ids(found) == {"nvidia.com/gpu": ["GPU-b"]}
    assert any("24576 MiB" in text for text in found.warnings)


def test_a_card_with_mig_is_not_cut() -> None:
    """MIG divides a card already."""
    inventory = Inventory(gpus=(replace(a100(0), mig_enabled=True),))
    found = build_resources(of_nvidia(GPU_8G), inventory)
    assert "criproxy.io/gpu-8g" not in found.resources


def test_a_card_that_leaves_changes_the_parts_of_no_other() -> None:
    """Numbers and shares of cards mean those that they meant when the file was read."""
    pins, config = Pins(), of_nvidia(replace(GPU_8G, select=CardChoice(share_percent=50)))
    both = two_gpus()
    assert "GPU-a/gpu-8g/0" in ids(build_resources(config, both, pins=pins))["criproxy.io/gpu-8g"]

    remaining = replace(both, gpus=(replace(both.gpus[1], index=0),))
    assert ids(build_resources(config, remaining, pins=pins)) == {"nvidia.com/gpu": ["GPU-b"]}
    assert ids(build_resources(config, both, pins=pins)) == {
        "nvidia.com/gpu": ["GPU-b"],
        "criproxy.io/gpu-8g": ["GPU-a/gpu-8g/0", "GPU-a/gpu-8g/1"],
    }
