"""What a container is given with NVIDIA's cards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.allocation import Allocator, Host, MpsError
from criproxy.deviceplugin.nvidia.options import Flags, PluginConfig, SharedResource
from criproxy.deviceplugin.nvidia.resources import offers
from criproxy.devices.classes.offers import card_of
from criproxy.devices.evidence.device_request import InvalidRequest, Mount, Response, joined
from tests.deviceplugin.nvidia.machines import a100, config, minors, passing, t4

GPUS = [t4(0), t4(1, minor=3)]
BARE = Host()
ALL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
SHARED = SharedResource(name="nvidia.com/gpu", replicas=3)
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
DIRECTORY = "/var/run/nvidia-container-devices"


def allocator(file: PluginConfig, *, resource: str = "nvidia.com/gpu", host: Host = BARE) -> Allocator:
    """Answer for a resource of a machine with two cards."""
    offered = offers(GPUS, file)[resource]
    only_one = file.sharing.only_one
    return Allocator(
        resource=resource, offered=offered, config=file, only_one=only_one, host=host, new_uuid=lambda: "uuid"
    )


def given_with(flags: Flags, *ids: str, host: Host = BARE) -> Response:
    """Return what a container with these cards gets."""
    return allocator(config().model_copy(update={"flags": flags}), host=host).allocate(ids)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param(passing("envvar"), Response(envs={VISIBLE: "GPU-1,GPU-0"}), id="variable"),
        pytest.param(passing("envvar", index=True), Response(envs={VISIBLE: "1,0"}), id="variable-by-index"),
        pytest.param(
            passing("volume-mounts"),
            Response(
                envs={VISIBLE: DIRECTORY},
                mounts=(Mount(f"{DIRECTORY}/GPU-1", "/dev/null"), Mount(f"{DIRECTORY}/GPU-0", "/dev/null")),
            ),
            id="mounts",
        ),
        pytest.param(
            passing("cdi-cri"),
            Response(cdi_devices=("k8s.device-plugin.nvidia.com/gpu=GPU-1", "k8s.device-plugin.nvidia.com/gpu=GPU-0")),
            id="cdi",
        ),
        pytest.param(
            passing("cdi-annotations", index=True),
            Response(
                annotations={
                    "p/nvidia-device-plugin_uuid": (
                        "k8s.device-plugin.nvidia.com/gpu=1,k8s.device-plugin.nvidia.com/gpu=0"
                    )
                }
            ),
            id="cdi-annotation",
        ),
        pytest.param(passing(specs=True), Response(), id="no-strategy"),
    ],
)
def test_strategies(flags: Flags, expected: Response) -> None:
    """Each strategy passes the cards in its way, in the order of the request."""
    assert given_with(flags, "GPU-1", "GPU-0") == expected


def test_a_variable_beside_mounts_names_the_directory() -> None:
    """Where both are asked, the hook is told to look at the mounts."""
    assert given_with(passing("volume-mounts", "envvar"), "GPU-0").envs == {VISIBLE: DIRECTORY}


def test_nodes() -> None:
    """Shared nodes that exist come first; a root is put before the path on the host only."""
    host = Host(nodes=("/dev/nvidia-uvm", "/dev/nvidiactl"), imex_channels=("0",))
    found = given_with(passing("envvar", specs=True, root="/run/driver/"), "GPU-1", host=host).devices

    assert [each.container_path for each in found] == [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia3",
        "/dev/nvidia-caps-imex-channels/channel0",
    ]
    assert all(each.host_path == f"/run/driver{each.container_path}" and each.permissions == "rw" for each in found)
    assert given_with(passing("cdi-cri", specs=True), "GPU-1", host=host).devices == ()
    assert given_with(passing("envvar", specs=True), "GPU-1").devices == (("/dev/nvidia3", "/dev/nvidia3", "rw"),)


def test_below_windows_there_are_no_shared_nodes() -> None:
    """The one node of Windows is all that a container gets, also where others exist."""
    file = config().model_copy(update={"flags": passing("envvar", specs=True)})
    offered = offers(GPUS, file, platform="wsl")["nvidia.com/gpu"]
    host = Host(platform="wsl", nodes=ALL_NODES)
    answers = Allocator(resource="nvidia.com/gpu", offered=offered, config=file, host=host, new_uuid=str)

    response = answers.allocate(["all"])
    assert response == Response(envs={VISIBLE: "all"}, devices=(("/dev/dxg", "/dev/dxg", "rw"),))  # type: ignore[arg-type]


def test_mig_devices_bring_their_capabilities() -> None:
    """A MIG device has the node of its GPU and its own; two of one GPU have that of the GPU twice."""
    flags = passing("envvar", specs=True).model_copy(update={"mig_strategy": "mixed"})
    file = config(strategy="mixed").model_copy(update={"flags": flags})
    offered = offers([a100(0, "1g.5gb", "1g.5gb")], file, minors=minors())["nvidia.com/mig-1g.5gb"]
    answers = Allocator(resource="nvidia.com/mig-1g.5gb", offered=offered, config=file, new_uuid=str)

    response = answers.allocate(["MIG-0-0", "MIG-0-1"])
    assert [each.host_path.removeprefix("/dev/") for each in response.devices] == [
        "nvidia0",
        "nvidia-caps/nvidia-cap12",
        "nvidia-caps/nvidia-cap13",
        "nvidia0",
        "nvidia-caps/nvidia-cap21",
        "nvidia-caps/nvidia-cap22",
    ]


def test_imex_channels() -> None:
    """Channels are passed as cards are: in a variable, as mounts, and as CDI devices."""
    host = Host(imex_channels=("0",))

    assert given_with(passing("envvar"), "GPU-0", host=host).envs["NVIDIA_IMEX_CHANNELS"] == "0"
    assert "NVIDIA_IMEX_CHANNELS" not in given_with(passing("volume-mounts"), "GPU-0", host=host).envs
    assert given_with(passing("volume-mounts"), "GPU-0", host=host).mounts[-1].container_path == f"{DIRECTORY}/imex/0"
    assert given_with(passing("cdi-cri"), host=host).cdi_devices == ("k8s.device-plugin.nvidia.com/imex-channel=0",)


def test_what_is_enabled_beside_cards() -> None:
    """Drivers of network and disks are named in variables with every strategy, and as CDI devices with CDI's."""
    others = dict.fromkeys(("gds_enabled", "mofed_enabled", "gdrcopy_enabled"), True)
    flags = passing("cdi-cri").model_copy(update=others)

    assert given_with(flags, "GPU-0") == Response(
        envs={"NVIDIA_GDRCOPY": "enabled", "NVIDIA_GDS": "enabled", "NVIDIA_MOFED": "enabled"},
        cdi_devices=tuple(
            f"k8s.device-plugin.nvidia.com/{name}" for name in ("gpu=GPU-0", "gdrcopy=all", "gds=all", "mofed=all")
        ),
    )


def test_mps() -> None:
    """A client of MPS finds its daemon's pipe and the shared memory, with every strategy and before other mounts."""
    file = config(SHARED, mps=True)
    mounts = (
        Mount("/mps/nvidia.com/gpu/pipe", "/run/nvidia/mps/nvidia.com/gpu/pipe"),
        Mount("/dev/shm", "/run/nvidia/mps/shm"),
    )
    for strategy in ("envvar", "volume-mounts", "cdi-cri"):
        response = allocator(file.model_copy(update={"flags": passing(strategy)})).allocate(["GPU-0::2"])

        assert response.envs["CUDA_MPS_PIPE_DIRECTORY"] == "/mps/nvidia.com/gpu/pipe"
        assert response.mounts[:2] == mounts


def test_mig_devices_are_not_served_with_mps() -> None:
    """A plugin for MIG devices does not start while MPS is configured."""
    file = config(SHARED, mps=True, strategy="single")
    offered = offers([a100(0, "1g.5gb")], file)["nvidia.com/gpu"]

    with pytest.raises(MpsError):
        Allocator(resource="nvidia.com/gpu", offered=offered, config=file, new_uuid=str)


@pytest.mark.parametrize(
    ("file", "ids", "expected"),
    [
        pytest.param(config(), ["GPU-0", "GPU-9"], "unknown device: GPU-9", id="unknown"),
        pytest.param(config(), ["GPU-0", ""], "unknown device: ", id="empty"),
        pytest.param(config(SHARED), ["GPU-0"], "unknown device: GPU-0", id="whole-although-shared"),
        pytest.param(
            config(SHARED, fail=True),
            ["GPU-0::0", "GPU-0::1"],
            "maximum request size for shared resources is 1; found 2",
            id="two-replicas",
        ),
        pytest.param(
            config(SHARED, mps=True, fail=True),
            ["GPU-0::0", "GPU-1::1"],
            "maximum request size for shared resources is 1; found 2",
            id="two-replicas-with-mps",
        ),
        pytest.param(config(SHARED, fail=True), ["GPU-0::0", "x"], "unknown device: x", id="unknown-comes-first"),
    ],
)
def test_invalid_requests(file: PluginConfig, ids: list[str], expected: str) -> None:
    """A request that cannot be served fails the pod with NVIDIA's words, together with those of other containers."""
    with pytest.raises(InvalidRequest) as error:
        allocator(file).allocate(ids)

    assert str(error.value) == f'invalid allocation request for "nvidia.com/gpu": invalid request: {expected}'


def test_a_file_that_allows_several_replicas_counts_with_mps_too() -> None:
    """Without the setting, MPS allows one replica; ``failRequestsGreaterThanOne: false`` allows more."""
    response = allocator(config(SHARED, mps=True, fail=False)).allocate(["GPU-0::0", "GPU-1::1"])

    assert response.envs[VISIBLE] == "GPU-0,GPU-1"


def test_mounts_name_mig_devices_by_uuid() -> None:
    """Nobody but NVML knows an index such as ``0:1``, so criproxy could not tell whose device the mount is."""
    flags = passing("volume-mounts", index=True)
    flags = flags.model_copy(update={"mig_strategy": "mixed"})
    file = config(strategy="mixed").model_copy(update={"flags": flags})
    offered = offers([a100(0, "1g.5gb", "1g.5gb")], file, minors=minors())["nvidia.com/mig-1g.5gb"]
    answers = Allocator(resource="nvidia.com/mig-1g.5gb", offered=offered, config=file, new_uuid=str)
    response = answers.allocate(list(offered)[:1])

    assert [each.container_path for each in response.mounts] == [f"{DIRECTORY}/{next(iter(offered))}"]


def test_two_whole_cards_are_never_too_many() -> None:
    """Only requests for replicas are limited."""
    file = config(SHARED.model_copy(update={"devices": ("7",), "name": "nvidia.com/other"}), fail=True)

    response = allocator(file).allocate(["GPU-0", "GPU-1"])
    assert response.envs == {VISIBLE: "GPU-0,GPU-1"}


@given(st.lists(st.sampled_from([f"GPU-{card}::{number}" for card in (0, 1) for number in (0, 1, 2)]), unique=True))
def test_replicas_become_cards(ids: list[str]) -> None:
    """A container is told each of its cards once, and the proxy each of its ids."""
    response = allocator(config(SHARED)).allocate(ids)
    cards = response.envs[VISIBLE].split(",") if ids else []

    assert cards == list(dict.fromkeys(map(card_of, ids)))
    assert joined(response, "nvidia.com/gpu", ids).annotations == {"devices.criproxy.io/nvidia.com_gpu": ",".join(ids)}
