"""What a container is given with NVIDIA's cards, beyond what `tests.vectors` has."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.allocation import Allocator, MpsError, overloaded
from criproxy.deviceplugin.nvidia.gpus import SHARED_NODES, Gpu
from criproxy.deviceplugin.nvidia.options import Flags, PluginConfig, SharedResource
from criproxy.deviceplugin.nvidia.resources import offers
from criproxy.devices.classes.offers import Offered, card_of
from criproxy.devices.evidence.device_request import Response, joined
from tests.deviceplugin.nvidia.machines import a100, config, minors, passing, t4

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.5gb"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
OLD = replace(t4(1), compute_capability=(7, 0))


def given_with(flags: Flags, offered: dict[str, Offered], ids: list[str], resource: str = GPU) -> Response:
    """Return what a container with these ids gets."""
    return Allocator(resource=resource, offered=offered, config=PluginConfig(flags=flags), new_uuid=str).allocate(ids)


def test_below_windows_there_are_no_shared_nodes() -> None:
    """The one node of Windows is all that a container gets, also where others exist."""
    offered = offers([t4(0), t4(1)], config(), platform="wsl")[GPU]
    file = PluginConfig(flags=passing("envvar", specs=True))
    answers = Allocator(resource=GPU, offered=offered, config=file, platform="wsl", nodes=SHARED_NODES, new_uuid=str)

    response = answers.allocate(["all"])
    assert response == Response(envs={VISIBLE: "all"}, devices=(("/dev/dxg", "/dev/dxg", "rw"),))  # type: ignore[arg-type]


def test_mounts_name_mig_devices_by_uuid() -> None:
    """Nobody but NVML knows an index such as ``0:1``, so criproxy could not tell whose device the mount is."""
    offered = dict(offers([a100(0, "1g.5gb", "1g.5gb")], config(strategy="mixed"), minors=minors())[MIG])
    response = given_with(passing("volume-mounts", index=True), offered, ["MIG-0-0"], MIG)

    assert [each.container_path for each in response.mounts] == ["/var/run/nvidia-container-devices/MIG-0-0"]


@given(st.lists(st.sampled_from([f"GPU-{card}::{number}" for card in (0, 1) for number in (0, 1, 2)]), unique=True))
def test_replicas_become_cards(ids: list[str]) -> None:
    """A container is told each of its cards once, and the proxy each of its ids."""
    shared = offers([t4(0), t4(1)], config(SharedResource(name=GPU, replicas=3)))[GPU]
    response = given_with(passing("envvar"), dict(shared), ids)
    cards = response.envs[VISIBLE].split(",") if ids else []

    assert cards == list(dict.fromkeys(map(card_of, ids)))
    assert joined(response, GPU, ids).annotations == {"devices.criproxy.io/nvidia.com_gpu": ",".join(ids)}


def mps(replicas: int = 4, *, name: str = GPU, **others: object) -> PluginConfig:
    """Return a file that shares cards by MPS."""
    return config(SharedResource(name=name, replicas=replicas), mps=True, **others)  # type: ignore[arg-type]


def test_mig_devices_are_not_served_with_mps() -> None:
    """No resource with MIG devices is served while MPS is configured, whether they are shared or not."""
    gpus = [a100(0, "1g.5gb")]
    for file in (mps(strategy="single"), mps(strategy="single", name="nvidia.com/other")):
        with pytest.raises(MpsError, match=r"^sharing using MPS is not supported for MIG devices$"):
            Allocator(resource=GPU, offered=offers(gpus, file)[GPU], config=file, new_uuid=str)


@pytest.mark.parametrize(
    ("gpus", "file", "found"),
    [
        pytest.param([t4(0)], mps(48), {}, id="fine"),
        pytest.param([t4(0), OLD], mps(17), {"GPU-1": "17 > 16"}, id="one-of-two"),
        pytest.param([t4(0)], mps(49), {"GPU-0": "49 > 48"}, id="too-many"),
        pytest.param([replace(t4(0), compute_capability=(0, 0))], mps(49), {}, id="not-described"),
        pytest.param([t4(0)], config(SharedResource(name=GPU, replicas=49)), {}, id="time-slicing"),
        pytest.param([a100(0, "1g.5gb")], mps(49, strategy="single"), {}, id="mig-is-refused-elsewhere"),
    ],
)
def test_overloaded_cards(gpus: list[Gpu], file: PluginConfig, found: dict[str, str]) -> None:
    """Those with more clients than they serve are known before a daemon starts, as far as NVML describes them."""
    texts = overloaded(offers(gpus, file), gpus, file)

    assert {card: text.rpartition(": ")[2] for card, text in texts.items()} == found
