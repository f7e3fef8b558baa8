"""vGPUs that are MIG devices in the device plugin: what is offered, what is left, and what a container gets."""

from dataclasses import replace

import pytest

from criproxy.deviceplugin.cards.card_offers import Pins
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.labels import vgpu_labels
from criproxy.deviceplugin.nvidia.gpus import Gpu, MigDevice
from criproxy.deviceplugin.nvidia.resources import ResourceError
from criproxy.deviceplugin.resources.resource_builder import build_resources
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.vgpu_profiles import CardChoice, Profile, Quota
from criproxy.devices.plugin.enforcement import enforced_quota_in
from tests.deviceplugin.cards.test_vgpus import GPU_8G, of_nvidia
from tests.deviceplugin.hosts import a100, part, t4
from tests.deviceplugin.resources.test_resource_builder import gpus, ids

SMALL = Profile(name="small", kind=NVIDIA.name, memory_mib=4096, enforce=("mig",))
RESOURCE = SMALL.resource
PARTS = (part(0), part(1), part(2, "3g.20gb", 19968))
MIXED = "version: v1\nflags: {migStrategy: mixed}"
SINGLE = "version: v1\nflags: {migStrategy: single}"
BIG = replace(SMALL, name="big", memory_mib=16384, cores_percent=40)


def divided(*parts: MigDevice, index: int = 0, slices: int = 7) -> Gpu:
    """Return an A100 with these MIG devices."""
    return replace(a100(index, numa_node=1), mig_enabled=True, mig=parts, mig_slices=slices)


def machine(*found: Gpu) -> Inventory:
    """Return a machine with these GPUs; capability nodes of the first MIG device are known."""
    return replace(gpus(*found), minors={(0, 1, None): 12, (0, 1, 0): 13})


@pytest.mark.parametrize(
    ("text", "profiles", "remaining"),
    [
        pytest.param("version: v1", [SMALL], {RESOURCE: [1, 2, 3]}, id="all-of-them-and-no-whole-gpu"),
        pytest.param("version: v1", [BIG], {BIG.resource: [3]}, id="some-of-them-and-no-whole-gpu"),
        pytest.param(MIXED, [SMALL, BIG], {RESOURCE: [1, 2], BIG.resource: [3]}, id="two-profiles"),
        pytest.param(
            MIXED, [BIG], {"nvidia.com/mig-1g.5gb": [1, 2], BIG.resource: [3]}, id="the-rest-under-nvidias-names"
        ),
        pytest.param(SINGLE, [BIG], {"nvidia.com/gpu": [1, 2], BIG.resource: [3]}, id="the-rest-is-all-alike"),
        pytest.param("version: v1", [replace(SMALL, select=CardChoice(mig=("3g.*",)))], {RESOURCE: [3]}, id="by-name"),
    ],
)
def test_what_is_offered(text: str, profiles: list[Profile], remaining: dict[str, list[int]]) -> None:
    """MIG devices of a profile are vGPUs and nothing else; the others are offered as NVIDIA's file says."""
    names = {each.resource: f"/{each.name}/0" for each in profiles}
    expected = {name: [f"MIG-{one}{names.get(name, '')}" for one in numbers] for name, numbers in remaining.items()}

    found = build_resources(of_nvidia(*profiles, text=text), machine(divided(*PARTS)))

    assert ids(found) == expected
    assert found.warnings == ()


def test_other_cards_are_offered_as_before() -> None:
    """GPUs without MIG are whole, or cut by profiles without MIG; GPUs with MIG that nobody selects stay, too."""
    cut = replace(GPU_8G, select=CardChoice(indexes=(1,)))
    wanted = replace(SMALL, select=CardChoice(indexes=(0,)))
    four = divided(part(0)), replace(t4(1), memory_mib=16384), t4(2), divided(part(3), index=3)

    assert ids(build_resources(of_nvidia(wanted, cut), machine(*four))) == {
        RESOURCE: ["MIG-1/small/0"],
        "criproxy.io/gpu-8g": ["GPU-1/gpu-8g/0", "GPU-1/gpu-8g/1"],
        "nvidia.com/gpu": ["GPU-2", "GPU-3"],
    }


def test_a_part_of_a_gpu_instance_is_no_vgpu() -> None:
    """Compute instances share the memory of their GPU instance, so that none has all that it seems to have."""
    found = build_resources(of_nvidia(SMALL), machine(divided(part(0, "1c.3g.20gb", 19968), part(1))))

    assert ids(found) == {RESOURCE: ["MIG-2/small/0"]}


def test_a_container_gets_its_mig_device_with_its_size() -> None:
    """Allocate gives the MIG device and its nodes; the quota in the annotations is what the device has."""
    nodes = "version: v1\nflags: {plugin: {passDeviceSpecs: true}}"
    found = build_resources(of_nvidia(replace(SMALL, enforce=("mig", "watch")), text=nodes), machine(divided(*PARTS)))

    response = found.resources[RESOURCE].allocation(["MIG-1/small/0"])

    assert response.envs == {"NVIDIA_VISIBLE_DEVICES": "MIG-1"}
    assert [each.host_path for each in response.devices] == [
        "/dev/nvidiactl",
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap12",
        "/dev/nvidia-caps/nvidia-cap13",
    ]
    assert response.annotations["devices.criproxy.io/criproxy.io_small"] == "MIG-1/small/0"
    assert enforced_quota_in(response.annotations) == Quota(profile="small", memory_mib=4864, cores_percent=14)


def test_a_vgpu_is_next_to_its_gpu() -> None:
    """The kubelet learns the NUMA node of the GPU, and health of the MIG device is that of the vGPU."""
    found = build_resources(of_nvidia(SMALL), machine(divided(*PARTS)), {NVIDIA.name: {"MIG-2"}})
    devices = found.resources[RESOURCE].devices

    assert {each.numa_node for each in devices.values()} == {1}
    assert [each.id for each in devices.values() if not each.healthy] == ["MIG-2/small/0"]


def test_labels_count_devices_and_gpus() -> None:
    """How many vGPUs there are, of how many GPUs, and what the smallest of them has."""
    found = build_resources(of_nvidia(SMALL), machine(divided(*PARTS)))

    assert vgpu_labels(RESOURCE, found.resources[RESOURCE].devices.values()) == {
        f"{RESOURCE}.count": "3",
        f"{RESOURCE}.cards": "1",
        f"{RESOURCE}.memory-mib": "4864",
        f"{RESOURCE}.cores-percent": "14",
    }


@pytest.mark.parametrize(
    ("inventory", "warning"),
    [
        pytest.param(replace(machine(divided()), pending=True), "until NVML has answered", id="pending"),
        pytest.param(replace(machine(divided()), nvml_queried=False), "only the driver knows", id="not-asked"),
    ],
)
def test_devices_that_are_not_known_yet(inventory: Inventory, warning: str) -> None:
    """Nothing is wrong then; and a GPU whose MIG devices may be vGPUs is not offered whole meanwhile."""
    found = build_resources(of_nvidia(SMALL), inventory, strict=True)

    assert not found.resources
    assert [text for text in found.warnings if warning in text]


def test_devices_that_come_and_go() -> None:
    """A MIG device that is made later becomes a vGPU; numbers of GPUs mean those that they meant at first."""
    pins, config = Pins(), of_nvidia(replace(SMALL, select=CardChoice(indexes=(1,))))
    first, second = divided(part(0)), divided(part(1), index=1)
    assert ids(build_resources(config, machine(first, second), pins=pins))[RESOURCE] == ["MIG-2/small/0"]

    more = replace(second, index=0, mig=(part(1), part(2)))
    assert ids(build_resources(config, machine(more), pins=pins)) == {RESOURCE: ["MIG-2/small/0", "MIG-3/small/0"]}
    assert ids(build_resources(config, machine(replace(first, index=0)), pins=pins)) == {"nvidia.com/gpu": ["GPU-0"]}


def test_mig_that_is_switched_off() -> None:
    """The GPU is offered as one without MIG, as after a start, and the profile of MIG devices has none."""
    pins, config = Pins(), of_nvidia(SMALL)
    assert ids(build_resources(config, machine(divided(part(0))), pins=pins)) == {RESOURCE: ["MIG-1/small/0"]}

    found = build_resources(config, machine(a100(0)), pins=pins)

    assert ids(found) == {"nvidia.com/gpu": ["GPU-0"]}
    assert found.warnings == ("profile small (4096 MiB) has no MIG device; without MIG: GPU-0",)


def test_mig_that_is_switched_on() -> None:
    """A GPU that was cut is not offered, and it is said why its profile has no vGPU; no start takes such a file."""
    pins, config = Pins(), of_nvidia(GPU_8G, text=MIXED)
    assert len(ids(build_resources(config, machine(a100(0)), pins=pins))[GPU_8G.resource]) == 4
    why = (
        "profile gpu-8g: select matches no card of class nvidia without MIG; with MIG: GPU-0, whose MIG devices become "
        "vGPUs with enforce: [mig]"
    )

    for parts, left in (((), {}), ((part(0),), {"nvidia.com/mig-1g.5gb": ["MIG-1"]})):
        found = build_resources(config, machine(divided(*parts)), pins=pins)
        assert ids(found) == left
        assert found.warnings[0] == why
        with pytest.raises(ResourceError, match="without MIG; with MIG: GPU-0"):
            build_resources(config, machine(divided(*parts)), strict=True)


@pytest.mark.parametrize(
    ("text", "offered", "warning"),
    [
        pytest.param("version: v1", ["GPU-0"], "GPU-0 is offered whole, but programs cannot use it: ", id="none"),
        pytest.param(MIXED, [], "GPU-0 is not offered: ", id="mixed"),
    ],
)
def test_mig_without_devices(text: str, offered: list[str], warning: str) -> None:
    """A GPU with MIG on which nothing was made is offered as NVIDIA's plugin does, and the log says what it lacks."""
    found = build_resources(of_nvidia(text=text), machine(divided()))

    assert ids(found).get("nvidia.com/gpu", []) == offered
    assert found.warnings == (f"{warning}MIG is on, but it has no MIG device",)


@pytest.mark.parametrize(
    ("text", "rest", "said"),
    [
        pytest.param(SINGLE, (part(1), part(2, "2g.10gb", 9856)), "more than one MIG device type", id="single"),
        pytest.param(MIXED, (part(1, "1c.3g.20gb", 19968),), "'1c.3g.20gb' does not match", id="mixed"),
    ],
)
def test_what_is_wrong_with_other_devices(text: str, rest: tuple[MigDevice, ...], said: str) -> None:
    """Devices that NVIDIA's file does not allow are not offered, but vGPUs are; no start takes such a file."""
    config, cards = of_nvidia(BIG, text=text), machine(divided(part(0, "3g.20gb", 19968), *rest))

    found = build_resources(config, cards)

    assert ids(found) == {BIG.resource: ["MIG-1/big/0"]}
    (warning,) = found.warnings
    assert warning.startswith("nvidia: only vGPUs are offered: ")
    assert said in warning
    with pytest.raises(ResourceError, match=said):
        build_resources(config, cards, strict=True)


@pytest.mark.parametrize("text", ["version: v1", MIXED])
def test_nvml_that_does_not_work(text: str) -> None:
    """Files show that there are MIG devices, but not which: nothing is wrong with the profile, and NVML is named."""
    undescribed = replace(divided(), mig_capable=False, memory_mib=0, mig_slices=0)
    unknown = replace(machine(undescribed), pending=True)
    found = build_resources(of_nvidia(SMALL, text=text), unknown, strict=True)

    assert ids(found) == {}
    assert found.warnings == ("NVIDIA's cards are not offered until NVML has answered: parts of them may be in use",)
