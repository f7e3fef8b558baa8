"""Flags and variables are read as NVIDIA's programs read them."""

from typing import Any

import pytest

from criproxy.deviceplugin.nvidia.file.command_line import set_values
from criproxy.deviceplugin.nvidia.file.flags import FLAGS, Program
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError

GDS = "flags.gdsEnabled"
LIST = "flags.plugin.deviceListStrategy"
IMEX = "imex.channelIDs"
SLEEP = "flags.gfd.sleepInterval"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param(["--mig-strategy=single"], {"flags.migStrategy": "single"}, id="two-dashes"),
        pytest.param(["-mig-strategy", "single"], {"flags.migStrategy": "single"}, id="one-dash-and-a-blank"),
        pytest.param(["--mig-strategy="], {"flags.migStrategy": ""}, id="empty"),
        pytest.param(["--mig-strategy=a", "--mig-strategy=b"], {"flags.migStrategy": "b"}, id="last-of-two"),
        pytest.param(["--gds-enabled"], {GDS: True}, id="bool-alone"),
        pytest.param(["--gds-enabled=F"], {GDS: False}, id="bool-with-a-value"),
        pytest.param(["--gds-enabled", "false", "--no-such"], {GDS: True}, id="ends-at-the-first-that-is-no-flag"),
        pytest.param(["--gds-enabled", "--", "--no-such"], {GDS: True}, id="ends-at-two-dashes"),
        pytest.param(
            ["--device-list-strategy=a, b", "--device-list-strategy", "c"], {LIST: ("a", "b", "c")}, id="list"
        ),
        pytest.param(["--imex-channel-ids=0x0,1"], {IMEX: (0, 1)}, id="integers"),
        pytest.param(["--nvidia-ctk-path=/a"], {"flags.plugin.nvidiaCTKPath": "/a"}, id="alias"),
        pytest.param(["--nvidia-dev-root=/a"], {"flags.nvidiaDevRoot": "/a"}, id="alias-of-dev-root"),
        pytest.param(
            ["--kubelet-socket=/a", "--cdi-feature-flags=b"],
            {"kubelet-socket": "/a", "cdi-feature-flags": ("b",)},
            id="not-in-the-file",
        ),
        pytest.param(["--config-file=/a"], {"config-file": "/a"}, id="file"),
    ],
)
def test_flags_set_values(args: list[str], expected: dict[str, Any]) -> None:
    """A flag has one dash or two, and a bool needs no value."""
    assert set_values(args, {}, "plugin") == expected


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(["--oneshot"], "flag provided but not defined: -oneshot", id="of-another-program"),
        pytest.param(["--mig-strategy"], "flag needs an argument: -mig-strategy", id="no-value"),
        pytest.param(["---gds-enabled"], "bad flag syntax: ---gds-enabled", id="three-dashes"),
        pytest.param(["--=1"], "bad flag syntax: --=1", id="no-name"),
        pytest.param(["--gds-enabled=yes"], 'invalid boolean value "yes" for -gds-enabled: parse error', id="bool"),
        pytest.param(["--imex-channel-ids="], 'invalid value "" for flag -imex-channel-ids: strconv', id="no-integer"),
        pytest.param(["--imex-channel-ids=0, 1"], 'invalid value "0, 1" for flag -imex-channel-ids', id="blank"),
        pytest.param(
            ["--dev-root=/a", "--nvidia-dev-root=/b"],
            "Cannot use two forms of the same flag: nvidia-dev-root dev-root",
            id="name-and-alias",
        ),
    ],
)
def test_flags_that_cannot_be_read_are_told(args: list[str], message: str) -> None:
    """The words are those of Go's libraries."""
    with pytest.raises(PluginConfigError) as error:
        set_values(args, {}, "plugin")

    assert message in str(error.value)
    assert (error.value.stage, error.value.mistake_class) == ("cli", "cli")


@pytest.mark.parametrize(
    ("program", "env", "expected"),
    [
        pytest.param("plugin", {"GDS_ENABLED": ""}, {GDS: False}, id="empty-bool"),
        pytest.param("plugin", {"GDS_ENABLED": "T"}, {GDS: True}, id="bool"),
        pytest.param("plugin", {"MIG_STRATEGY": ""}, {"flags.migStrategy": ""}, id="empty-text"),
        pytest.param("plugin", {"DEVICE_LIST_STRATEGY": ""}, {LIST: ("",)}, id="empty-list"),
        pytest.param("plugin", {"DEVICE_LIST_STRATEGY": " a ,b"}, {LIST: ("a", "b")}, id="list"),
        pytest.param("plugin", {"IMEX_CHANNEL_IDS": ""}, {}, id="empty-integers"),
        pytest.param("plugin", {"IMEX_CHANNEL_IDS": "0, 1"}, {IMEX: (0, 1)}, id="integers"),
        pytest.param("plugin", {"GFD_ONESHOT": "x", "PATH": "/bin"}, {}, id="of-others"),
        pytest.param(
            "plugin",
            {"NVIDIA_CTK_PATH": "/b", "NVIDIA_CDI_HOOK_PATH": ""},
            {"flags.plugin.nvidiaCTKPath": ""},
            id="first-of-two-even-if-empty",
        ),
        pytest.param("gfd", {"GFD_SLEEP_INTERVAL": ""}, {}, id="empty-duration"),
        pytest.param("gfd", {"GFD_SLEEP_INTERVAL": "infinite"}, {SLEEP: "infinite"}, id="for-ever"),
        pytest.param("gfd", {"MIG_STRATEGY": "a"}, {"flags.migStrategy": "a"}, id="second-of-two"),
        pytest.param("gfd", {"GFD_CONFIG_FILE": "/a", "CONFIG_FILE": "/b"}, {"config-file": "/a"}, id="file"),
    ],
)
def test_variables_set_values(program: Program, env: dict[str, str], expected: dict[str, Any]) -> None:
    """What an empty variable says depends on the kind of its flag."""
    assert set_values([], env, program) == expected


@pytest.mark.parametrize(
    ("program", "env", "message"),
    [
        pytest.param(
            "plugin",
            {"GDS_ENABLED": "on"},
            'could not parse "on" as bool value from environment variable "GDS_ENABLED" for flag gds-enabled: strconv',
            id="bool",
        ),
        pytest.param(
            "gfd",
            {"GFD_SLEEP_INTERVAL": "60"},
            'could not parse "60" from environment variable "GFD_SLEEP_INTERVAL" as value for flag sleep-interval: ',
            id="duration",
        ),
    ],
)
def test_variables_that_cannot_be_read_are_told(program: Program, env: dict[str, str], message: str) -> None:
    """A variable counts before any flag: what is wrong with it is told first."""
    with pytest.raises(PluginConfigError) as error:
        set_values(["--no-such"], env, program)

    assert message in str(error.value)


def test_a_flag_replaces_the_list_of_a_variable() -> None:
    """Lists of flag and variable are not joined."""
    assert set_values(["--device-list-strategy=a"], {"DEVICE_LIST_STRATEGY": "b"}, "plugin") == {LIST: ("a",)}


@pytest.mark.parametrize("program", FLAGS)
def test_no_name_has_two_meanings(program: Program) -> None:
    """Names, variables and keys of a program are all different."""
    flags = FLAGS[program]
    for several in (
        [name for flag in flags for name in flag.names],
        [name for flag in flags for name in flag.variables],
        [flag.key for flag in flags if flag.key],
    ):
        assert len(several) == len(set(several))
