"""Which resources NVIDIA's cards are offered as, and under which ids."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.deviceplugin.nvidia.options import PluginConfig, ResourcePattern, Resources, SharedResource
from criproxy.deviceplugin.nvidia.resources import ResourceError, empty_parents, matches, offers
from criproxy.devices.classes.offers import Offered, card_of
from tests.deviceplugin.nvidia.machines import a100, config, minors, t4

GPU = "nvidia.com/gpu"


def ids(gpus: list[Gpu], file: PluginConfig) -> dict[str, list[str]]:
    """Return the ids by resource."""
    return {name.removeprefix("nvidia.com/"): list(offered) for name, offered in offers(gpus, file).items()}


def shared(name: str = GPU, *, devices: tuple[str, ...] = (), rename: str = "", replicas: int = 2) -> SharedResource:
    """Return an entry for all cards of a resource, or for some."""
    return SharedResource(name=name, rename=rename, devices=devices or "all", replicas=replicas)


@pytest.mark.parametrize(
    ("gpus", "file", "expected"),
    [
        pytest.param([], config(), {}, id="no-card"),
        pytest.param([t4(0), t4(1)], config(), {"gpu": ["GPU-0", "GPU-1"]}, id="whole"),
        pytest.param(
            [t4(0), t4(1, name="DGX Display"), t4(2, name="NVIDIA DGX Display"), t4(3, name="DGX Display 2")],
            config(),
            {"gpu": ["GPU-0", "GPU-3"]},
            id="displays",
        ),
        pytest.param([t4(0)], config(shared()), {"gpu": ["GPU-0::0", "GPU-0::1"]}, id="shared"),
        pytest.param([t4(0)], config(shared(), rename=True), {"gpu.shared": ["GPU-0::0", "GPU-0::1"]}, id="renamed"),
        pytest.param(
            [t4(0), t4(1)],
            config(shared(devices=("1",), rename="nvidia.com/half")),
            {"gpu": ["GPU-0"], "half": ["GPU-1::0", "GPU-1::1"]},
            id="one-shared-one-whole",
        ),
        pytest.param([a100(0, "1g.5gb")], config(), {"gpu": ["GPU-0"]}, id="none-offers-the-parent"),
        pytest.param(
            [a100(0, "1g.5gb", "1g.5gb")], config(strategy="single"), {"gpu": ["MIG-0-0", "MIG-0-1"]}, id="single"
        ),
        pytest.param([a100(0, on=False)], config(strategy="single"), {"gpu": ["GPU-0"]}, id="single-without-mig"),
        pytest.param(
            [a100(0, "1g.5gb+me", "3g.20gb"), t4(1)],
            config(strategy="mixed"),
            {"gpu": ["GPU-1"], "mig-1g.5gb.me": ["MIG-0-0"], "mig-3g.20gb": ["MIG-0-1"]},
            id="mixed",
        ),
        pytest.param(
            [a100(0, "1g.5gb"), a100(1)], config(strategy="mixed"), {"mig-1g.5gb": ["MIG-0-0"]}, id="an-empty-parent"
        ),
        pytest.param(
            [a100(0, "1g.5gb", "1g.5gb")],
            config(shared("nvidia.com/mig-1g.5gb", devices=("0:1",)), strategy="mixed"),
            {"mig-1g.5gb": ["MIG-0-0", "MIG-0-1::0", "MIG-0-1::1"]},
            id="one-mig-device-shared",
        ),
    ],
)
def test_resources(gpus: list[Gpu], file: PluginConfig, expected: dict[str, list[str]]) -> None:
    """The MIG strategy and the shared resources decide."""
    assert ids(gpus, file) == expected


def test_resources_by_product() -> None:
    """The first pattern that matches a card's product or profile names its resource; all others have the default."""
    resources = Resources(
        gpus=(
            ResourcePattern(pattern="*T4", name="nvidia.com/small"),
            ResourcePattern(pattern="Tesla*", name="nvidia.com/old"),
        ),
        mig=(ResourcePattern(pattern="1c.*", name="nvidia.com/part"),),
    )
    file = config(strategy="mixed").model_copy(update={"resources": resources})
    gpus = [t4(0), t4(1, name="Tesla P4"), t4(2, name="NVIDIA L4"), a100(3, "1c.3g.20gb", "3g.20gb")]

    assert ids(gpus, file) == {
        "small": ["GPU-0"],
        "old": ["GPU-1"],
        "gpu": ["GPU-2"],
        "part": ["MIG-3-0"],
        "mig-3g.20gb": ["MIG-3-1"],
    }


_VISIT = "error visiting devices: error visiting device: error visiting MIG device: "
_FROM_FILE = "error building device map from config.resources: "


@pytest.mark.parametrize(
    ("gpus", "file", "expected"),
    [
        pytest.param(
            [a100(0, "1g.5gb", "2g.10gb")],
            config(strategy="single"),
            f"{_FROM_FILE}invalid MIG configuration: {_VISIT}more than one MIG device type present on node",
            id="single-two-profiles",
        ),
        pytest.param(
            [a100(0, "1g.5gb"), t4(1)],
            config(strategy="single"),
            f"{_FROM_FILE}all devices on the node must be configured with the same migEnabled value",
            id="single-and-whole",
        ),
        pytest.param(
            [t4(0), a100(1)],
            config(strategy="single"),
            f"{_FROM_FILE}invalid MIG configuration: at least one device with migEnabled=true was not configured"
            " correctly: error visiting device: device 1 has no MIG devices configured",
            id="single-and-empty",
        ),
        pytest.param(
            [a100(0, "1c.3g.20gb")],
            config(strategy="mixed"),
            f"{_FROM_FILE}error building MIG device map: {_VISIT}MIG profile '1c.3g.20gb' does not match any resource"
            " patterns",
            id="mixed-part-of-an-instance",
        ),
        pytest.param(
            [t4(0)],
            config(shared(devices=("7",))),
            "error updating device map with replicas from replicatedResources config: unable to get IDs of devices to"
            " replicate for 'nvidia.com/gpu' resource: no matching device at index: 7",
            id="shared-card-not-there",
        ),
    ],
)
def test_errors(gpus: list[Gpu], file: PluginConfig, expected: str) -> None:
    """Cards that do not go with the file are an error, in the words of NVIDIA's plugin."""
    with pytest.raises(ResourceError) as error:
        offers(gpus, file)

    assert str(error.value) == expected


def test_instances_of_one_profile_and_different_memory_differ() -> None:
    """The strategy single compares what NVML says: the size in a name is relative to the GPU's."""
    first, second = a100(0, "1g.5gb"), a100(1, "1g.5gb")
    other = replace(second, mig=(replace(second.mig[0], memory_mib=5000),))

    assert ids([first, second], config(strategy="single")) == {"gpu": ["MIG-0-0", "MIG-1-0"]}
    with pytest.raises(ResourceError, match="more than one MIG device type present on node"):
        offers([first, other], config(strategy="single"))


def test_what_is_known_of_an_id() -> None:
    """A card's nodes follow its minor number, and its NUMA node is that of the GPU."""
    gpus = [replace(t4(1, minor=4), numa_node=1), replace(a100(2, "1g.5gb"), minor=0, numa_node=0)]
    found = offers(gpus, config(shared(replicas=3), strategy="mixed"), minors=minors())

    assert found[GPU]["GPU-1::2"] == Offered(id="GPU-1::2", index="1", paths=("/dev/nvidia4",), replicas=3, numa_node=1)
    paths = ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13")
    assert found["nvidia.com/mig-1g.5gb"]["MIG-2-0"] == Offered(id="MIG-2-0", index="2:0", paths=paths, numa_node=0)


def test_windows_and_tegra() -> None:
    """Below Windows all GPUs are one card with one node, and a Tegra chip has one without any."""
    below_windows = offers([t4(0), t4(1)], config(shared()), platform="wsl")
    tegra = offers([], config(), platform="tegra")

    assert {each: found.paths for each, found in below_windows[GPU].items()} == {
        "all::0": ("/dev/dxg",),
        "all::1": ("/dev/dxg",),
    }
    assert tegra == {GPU: {"tegra": Offered(id="tegra", index="0")}}


def test_empty_parents() -> None:
    """GPUs with MIG in which a program finds nothing to use are named."""
    gpus = [a100(0, "1g.5gb"), a100(1), t4(2)]

    assert empty_parents(gpus) == [gpus[1]]


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        pytest.param("*", "anything", True, id="any"),
        pytest.param("Tesla*", "Tesla T4", True, id="begins"),
        pytest.param("T4", "Tesla T4", False, id="all-of-it"),
        pytest.param("tesla*", "Tesla T4", False, id="case"),
        pytest.param("1g.5gb", "1gx5gb", False, id="a-dot-is-a-dot"),
        pytest.param("1g.5gb+me", "1g.5gb+me", True, id="a-plus-is-a-plus"),
        pytest.param("Tesla T?", "Tesla T4", False, id="only-stars"),
    ],
)
def test_patterns(pattern: str, name: str, expected: bool) -> None:
    """Only a star is special, and a pattern is for the whole name."""
    assert matches(pattern, name) is expected


@given(st.lists(st.sampled_from(["t4", "a100", "mig"]), max_size=6), st.integers(2, 5), st.booleans())
def test_capacity(kinds: list[str], replicas: int, rename: bool) -> None:
    """Every card is offered as often as the file says, and no id is in two resources."""
    gpus = [
        t4(index) if kind == "t4" else a100(index, "1g.5gb") if kind == "mig" else a100(index, on=False)
        for index, kind in enumerate(kinds)
    ]
    found = offers(gpus, config(shared(replicas=replicas), strategy="mixed", rename=rename))
    everything = [each for offered in found.values() for each in offered]

    assert len(everything) == len(set(everything))
    assert sum(each.replicas == replicas for offered in found.values() for each in offered.values()) == replicas * len(
        [kind for kind in kinds if kind != "mig"]
    )
    assert {card_of(each) for each in everything} == {
        f"MIG-{index}-0" if kind == "mig" else f"GPU-{index}" for index, kind in enumerate(kinds)
    }
