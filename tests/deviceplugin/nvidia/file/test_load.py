"""The whole configuration: flags over variables over the file over defaults."""

from itertools import product

import pytest

from criproxy.deviceplugin.nvidia.file.load import load, loaded_values
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError
from criproxy.deviceplugin.nvidia.options import Flags, GfdFlags, PluginConfig

FILE = "flags: {migStrategy: single, plugin: {deviceListStrategy: volume-mounts}, gfd: {sleepInterval: 30s}}"


def test_without_anything_every_value_is_the_default() -> None:
    """No file, no flag and no variable are fine, and an empty file is, too."""
    assert load(None) == PluginConfig()
    assert load("") == PluginConfig()


def test_gpu_feature_discovery_publishes_by_nodefeature_objects_unless_told_otherwise() -> None:
    """The default of `useNodeFeatureAPI` is true there, and not set in the plugin."""
    assert load(None, program="gfd") == PluginConfig(flags=Flags(use_node_feature_api=True))
    assert load("flags: {useNodeFeatureAPI: false}", program="gfd").flags.use_node_feature_api is False
    assert load("flags: {useNodeFeatureAPI: false}").flags.use_node_feature_api is False


@pytest.mark.parametrize(("in_file", "in_env", "in_args"), list(product((False, True), repeat=3)))
def test_flags_come_before_variables_before_the_file(in_file: bool, in_env: bool, in_args: bool) -> None:
    """The nearest that is set counts, even where it says the default."""
    config = load(
        "flags: {migStrategy: mixed, gdsEnabled: true}" if in_file else None,
        ["--mig-strategy=none", "--gds-enabled=false"] if in_args else [],
        {"MIG_STRATEGY": "single", "GDS_ENABLED": "1"} if in_env else {},
    )

    expected = "none" if in_args else "single" if in_env else "mixed" if in_file else "none"
    assert config.flags.mig_strategy == expected
    assert config.flags.gds_enabled is (not in_args and (in_env or in_file))


@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        pytest.param("flags: {nvidiaDriverRoot: /a}", [], "/a", id="of-the-driver"),
        pytest.param("flags: {nvidiaDriverRoot: /a, nvidiaDevRoot: ''}", [], "/a", id="empty"),
        pytest.param("flags: {nvidiaDriverRoot: /a, nvidiaDevRoot: /b}", [], "/b", id="its-own"),
        pytest.param("flags: {nvidiaDevRoot: /b}", ["--driver-root=/c"], "/b", id="of-the-file"),
        pytest.param("flags: {nvidiaDevRoot: /b}", ["--dev-root="], "/", id="unset-by-a-flag"),
    ],
)
def test_device_nodes_are_below_the_drivers_root_unless_told_otherwise(
    text: str, args: list[str], expected: str
) -> None:
    """An empty root counts as not set."""
    assert load(text, args).flags.nvidia_dev_root == expected


def test_the_plugin_keeps_the_values_for_labels() -> None:
    """What NVIDIA's plugin drops after loading is used by ours, which writes labels, too."""
    assert load(FILE).flags.gfd == GfdFlags(sleep_interval_ns=30_000_000_000)
    assert load("flags: {gfd: {sleepInterval: infinite}}").flags.gfd.sleep_interval_ns is None


def test_a_value_that_nobody_sets_has_no_key() -> None:
    """GPU feature discovery has no flag for what only the plugin needs."""
    _, values = loaded_values("flags: {mpsRoot: /a}", program="gfd")

    assert values["flags.mpsRoot"] == "/a"
    assert "flags.gdsEnabled" not in values
    assert "config-file" not in values


def test_the_file_that_a_flag_names_is_read() -> None:
    """A text that is given comes first."""
    assert load(None, ["--config-file=/a"], read=lambda name: FILE).flags.mig_strategy == "single"
    assert load("", ["--config-file=/a"], read=lambda name: FILE).flags.mig_strategy == "none"
    assert load(None, ["--config-file=/a"]).flags.mig_strategy == "none"


@pytest.mark.parametrize(
    ("cause", "kind", "message"),
    [
        pytest.param(
            FileNotFoundError(2, "No such file or directory"),
            "file",
            "error opening config file: open /a: no such file or directory",
            id="missing",
        ),
        pytest.param(
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), "syntax", "/a is not UTF-8 text", id="bytes"
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_a_mistake(cause: Exception, kind: str, message: str) -> None:
    """It is told with the name of the file."""

    def read(name: str) -> str:
        raise cause

    with pytest.raises(PluginConfigError) as error:
        load(None, [], {"CONFIG_FILE": "/a"}, read=read)

    assert message in str(error.value)
    assert (error.value.stage, error.value.mistake_class) == ("parse", kind)
