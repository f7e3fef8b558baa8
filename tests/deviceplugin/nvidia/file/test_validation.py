"""What values fit together."""

import pytest

from criproxy.deviceplugin.nvidia.file.flags import Program
from criproxy.deviceplugin.nvidia.file.load import load
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError

MPS = "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}"


@pytest.mark.parametrize(
    ("args", "text", "message"),
    [
        pytest.param(
            ["--device-list-strategy=envvar,cdi"],
            None,
            "invalid --device-list-strategy option: invalid strategy: cdi; "
            "it can be envvar, volume-mounts, cdi-annotations or cdi-cri",
            id="list-strategy",
        ),
        pytest.param(
            ["--device-id-strategy=UUID"],
            None,
            "invalid --device-id-strategy option: UUID; it can be uuid or index",
            id="id",
        ),
        pytest.param(
            ["--shared-devices-allocation-policy="],
            None,
            "invalid --shared-devices-allocation-policy option: ; it can be distributed or packed",
            id="policy",
        ),
        pytest.param(
            ["--device-discovery-strategy=vfio"],
            None,
            "invalid --device-discovery-strategy option vfio",
            id="discovery",
        ),
        pytest.param(
            ["--mig-strategy=all"], None, "unknown MIG strategy: all; it can be none, single or mixed", id="mig"
        ),
        pytest.param(
            ["--mig-strategy=all"], MPS, "using MPS requires --mps-root to be specified", id="no-root-for-mps"
        ),
        pytest.param(
            ["--mig-strategy=mixed"], MPS, "using --mig-strategy=mixed is not supported with MPS", id="mps-mixed"
        ),
        pytest.param(["--imex-channel-ids=0,2"], None, "channelIDs must be [] or [0]; found [0 2]", id="imex"),
        pytest.param(
            ["--imex-channel-ids=2", "--mig-strategy=all", "--device-id-strategy=x", "--device-list-strategy=x"],
            None,
            "invalid strategy: x",
            id="the-list-strategy-first",
        ),
    ],
)
def test_the_plugin_does_not_start_with_what_does_not_fit(args: list[str], text: str | None, message: str) -> None:
    """The first mistake in the order of NVIDIA's checks is told."""
    with pytest.raises(PluginConfigError) as error:
        load(text, args)

    assert message in str(error.value)
    assert (error.value.stage, error.value.mistake_class) == ("validate", "value")


@pytest.mark.parametrize(
    ("program", "args", "text"),
    [
        pytest.param("plugin", [], "flags: {plugin: {deviceListStrategy: []}}", id="no-list-strategy"),
        pytest.param("plugin", ["--mps-root=/a", "--mig-strategy=single"], MPS, id="mps-with-mig-single"),
        pytest.param("gfd", [], MPS, id="gfd-needs-no-root-for-mps"),
        pytest.param("gfd", ["--mig-strategy=all"], "imex: {channelIDs: [5]}", id="gfd-checks-little"),
        pytest.param("gfd", ["--device-discovery-strategy=vfio"], None, id="gfd-knows-vfio"),
    ],
)
def test_what_nvidia_accepts_is_accepted(program: Program, args: list[str], text: str | None) -> None:
    """GPU feature discovery checks less than the plugin."""
    load(text, args, program=program)


@pytest.mark.parametrize("strategy", ["cdi-cri", "cdi-annotations", "envvar,cdi-cri"])
def test_cdi_needs_nvml(strategy: str) -> None:
    """Without the library nobody can write the specification of the cards."""
    args = [f"--device-list-strategy={strategy}"]
    load(None, args)

    with pytest.raises(PluginConfigError, match="only supported on NVML-based systems"):
        load(None, args, has_nvml=False)
    load(None, ["--device-list-strategy=envvar"], has_nvml=False)
