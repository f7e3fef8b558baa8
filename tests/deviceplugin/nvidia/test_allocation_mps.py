"""What MPS daemons are started with."""

from dataclasses import replace

import pytest

from criproxy.deviceplugin.nvidia.allocation import Daemon, MpsError, check, daemons, overloaded
from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.deviceplugin.nvidia.options import PluginConfig, SharedResource
from criproxy.deviceplugin.nvidia.resources import offers
from tests.deviceplugin.nvidia.machines import a100, config, t4


def mps(replicas: int = 4, *, name: str = "nvidia.com/gpu", **others: object) -> PluginConfig:
    """Return a file that shares cards by MPS."""
    return config(SharedResource(name=name, replicas=replicas), mps=True, **others)  # type: ignore[arg-type]


def started(gpus: list[Gpu], file: PluginConfig) -> tuple[Daemon, ...]:
    """Return the daemons that a file needs."""
    return daemons(offers(gpus, file), gpus, file)


def old(gpu: Gpu) -> Gpu:
    """Return a card that is older than those of which MPS serves more clients."""
    return replace(gpu, compute_capability=(7, 0))


def test_limits() -> None:
    """Each of a card's clients may use its part of the memory and of the threads, rounded down."""
    (daemon,) = started([t4(0), replace(t4(1), memory_mib=16384), replace(t4(2), memory_mib=0)], mps(7))

    assert daemon == Daemon(
        resource="nvidia.com/gpu",
        pinned_memory_limits={"0": "2194M", "1": "2340M"},
        active_thread_percentage="14",
        envs={
            "CUDA_MPS_PIPE_DIRECTORY": "/mps/nvidia.com/gpu/pipe",
            "CUDA_MPS_LOG_DIRECTORY": "/mps/nvidia.com/gpu/log",
        },
        started_file="/mps/nvidia.com/gpu/.started",
    )


def test_a_renamed_resource_has_directories_of_its_own() -> None:
    """The directories follow the name under which cards are offered."""
    (daemon,) = started([t4(0)], mps(rename=True))

    assert daemon.started_file == "/mps/nvidia.com/gpu.shared/.started"


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(config(), id="nothing-shared"),
        pytest.param(config(SharedResource(name="nvidia.com/gpu", replicas=2)), id="time-slicing"),
        pytest.param(mps(name="nvidia.com/other"), id="other-cards"),
    ],
)
def test_no_daemon(file: PluginConfig) -> None:
    """A daemon is needed only for cards that are shared by MPS."""
    assert started([t4(0)], file) == ()


@pytest.mark.parametrize(
    ("gpu", "replicas", "most"),
    [
        pytest.param(t4(0), 48, None, id="most-clients"),
        pytest.param(t4(0), 49, 48, id="too-many"),
        pytest.param(old(t4(0)), 16, None, id="most-clients-before"),
        pytest.param(old(t4(0)), 17, 16, id="too-many-before"),
        pytest.param(replace(t4(0), compute_capability=(10, 0)), 48, None, id="two-digits"),
    ],
)
def test_clients(gpu: Gpu, replicas: int, most: int | None) -> None:
    """A card serves a number of clients that depends on its generation."""
    if most is None:
        assert len(started([gpu], mps(replicas))) == 1
        return
    with pytest.raises(MpsError) as error:
        started([gpu], mps(replicas))

    text = f"invalid device maximum allowed replicas exceeded: {replicas} > {most}"
    assert str(error.value) == f"invalid MPS configuration: {text}"


def test_mig_devices_are_not_served() -> None:
    """No resource with MIG devices is served while MPS is configured, whether they are shared or not."""
    gpus = [a100(0, "1g.5gb")]
    for file in (mps(strategy="single"), mps(strategy="single", name="nvidia.com/other")):
        with pytest.raises(MpsError, match=r"^sharing using MPS is not supported for MIG devices$"):
            check(offers(gpus, file)["nvidia.com/gpu"].values(), file)
    check(offers([t4(0)], mps())["nvidia.com/gpu"].values(), mps())


@pytest.mark.parametrize(
    ("gpus", "file", "found"),
    [
        pytest.param([t4(0)], mps(48), {}, id="fine"),
        pytest.param([t4(0), old(t4(1))], mps(17), {"GPU-1": "17 > 16"}, id="one-of-two"),
        pytest.param([t4(0)], mps(49), {"GPU-0": "49 > 48"}, id="too-many"),
        pytest.param([replace(t4(0), compute_capability=(0, 0))], mps(49), {}, id="not-described"),
        pytest.param([t4(0)], config(SharedResource(name="nvidia.com/gpu", replicas=49)), {}, id="time-slicing"),
        pytest.param([a100(0, "1g.5gb")], mps(49, strategy="single"), {}, id="mig-is-refused-elsewhere"),
    ],
)
def test_overloaded_cards(gpus: list[Gpu], file: PluginConfig, found: dict[str, str]) -> None:
    """Those with more clients than they serve are known before a daemon starts, as far as NVML describes them."""
    texts = overloaded(offers(gpus, file), gpus, file)

    assert {card: text.rpartition(": ")[2] for card, text in texts.items()} == found
