"""NVIDIA's flags and variables override its file."""

from itertools import product

import pytest

from criproxy.deviceplugin.nvidia.options import INFINITE
from criproxy.deviceplugin.nvidia.settings import SETTINGS, overrides
from tests.deviceplugin.nvidia.files import config_of, mistakes_of

GDS = "flags.gdsEnabled"
LIST = "flags.plugin.deviceListStrategy"
IMEX = "imex.channelIDs"
CTK = "flags.plugin.nvidiaCTKPath"


@pytest.mark.parametrize(
    ("flags", "env", "expected"),
    [
        pytest.param({}, {"PATH": "/bin"}, {}, id="nothing"),
        pytest.param({"mig-strategy": "single"}, {}, {"flags.migStrategy": "single"}, id="flag"),
        pytest.param({"mig-strategy": ""}, {}, {"flags.migStrategy": ""}, id="empty-flag"),
        pytest.param({"mig-strategy": "none"}, {"MIG_STRATEGY": "mixed"}, {"flags.migStrategy": "none"}, id="both"),
        pytest.param({"device-list-strategy": "a, b"}, {"DEVICE_LIST_STRATEGY": "c"}, {LIST: ["a", "b"]}, id="list"),
        pytest.param({}, {"GDS_ENABLED": ""}, {GDS: False}, id="empty-bool"),
        pytest.param({}, {"MIG_STRATEGY": ""}, {"flags.migStrategy": ""}, id="empty-text"),
        pytest.param({}, {"DEVICE_LIST_STRATEGY": ""}, {LIST: [""]}, id="empty-list"),
        pytest.param({}, {"IMEX_CHANNEL_IDS": ""}, {}, id="empty-integers"),
        pytest.param({}, {"GFD_SLEEP_INTERVAL": ""}, {}, id="empty-duration"),
        pytest.param({}, {"IMEX_CHANNEL_IDS": "0, 1"}, {IMEX: ["0", "1"]}, id="integers"),
        pytest.param({}, {"NVIDIA_CTK_PATH": "/b", "NVIDIA_CDI_HOOK_PATH": ""}, {CTK: ""}, id="first-of-two"),
        pytest.param({"kubelet-socket": "/a"}, {}, {"kubelet-socket": "/a"}, id="not-in-the-file"),
    ],
)
def test_flags_and_variables_set_values(
    flags: dict[str, str], env: dict[str, str], expected: dict[str, object]
) -> None:
    """A flag comes before a variable; what an empty variable sets depends on the kind of the setting."""
    assert {each.key: each.value for each in overrides(flags, env)} == expected


@pytest.mark.parametrize(("in_file", "in_env", "in_flags"), list(product((False, True), repeat=3)))
def test_flags_come_before_variables_before_the_file(in_file: bool, in_env: bool, in_flags: bool) -> None:
    """The nearest one that is set counts, even if it sets the default."""
    config = config_of(
        "flags: {migStrategy: mixed, gdsEnabled: true}" if in_file else "",
        {"mig-strategy": "none", "gds-enabled": "false"} if in_flags else {},
        {"MIG_STRATEGY": "single", "GDS_ENABLED": "1"} if in_env else {},
    )

    expected = "none" if in_flags else "single" if in_env else "mixed" if in_file else "none"
    assert config.flags.mig_strategy == expected
    assert config.flags.gds_enabled is (not in_flags and (in_env or in_file))


def test_values_of_every_kind_are_read() -> None:
    """Variables are texts, whatever they set."""
    config = config_of(
        "", {}, {"GDS_ENABLED": "T", "IMEX_CHANNEL_IDS": "0", "GFD_SLEEP_INTERVAL": INFINITE, "GFD_ONESHOT": "true"}
    )

    assert config.flags.gds_enabled
    assert config.imex.channel_ids == (0,)
    assert config.flags.gfd.sleep_interval == INFINITE
    assert config.flags.gfd.oneshot


@pytest.mark.parametrize(
    ("env", "mistake"),
    [
        pytest.param({"GDS_ENABLED": "maybe"}, "GDS_ENABLED=maybe: must be true or false, not 'maybe'", id="bool"),
        pytest.param({"IMEX_CHANNEL_IDS": "0,x"}, "IMEX_CHANNEL_IDS=0,x: must be a whole number, not 'x'", id="list"),
        pytest.param({"GFD_SLEEP_INTERVAL": "60"}, "GFD_SLEEP_INTERVAL=60: invalid duration; ", id="duration"),
        pytest.param(
            {"MIG_STRATEGY": "all"}, "MIG_STRATEGY=all: unknown MIG strategy: all; it can be none, single", id="word"
        ),
    ],
)
def test_a_mistake_is_that_of_its_variable(env: dict[str, str], mistake: str) -> None:
    """The sentence begins with the variable, and not with a line of the file."""
    (found,) = mistakes_of("flags: {migStrategy: none}", {}, env)

    assert found.startswith(mistake)


def test_a_section_of_the_file_that_is_none_is_its_mistake() -> None:
    """A variable does not hide what the file says there."""
    (found,) = mistakes_of("version: v1\nflags: 5", {}, {"MIG_STRATEGY": "none"})

    assert found.startswith("flags: must be a group of options")


def test_no_name_has_two_meanings() -> None:
    """Flags, variables and keys are all different."""
    for several in (
        [name for setting in SETTINGS for name in setting.flags],
        [name for setting in SETTINGS for name in setting.variables],
        [setting.key for setting in SETTINGS],
    ):
        assert len(several) == len(set(several))
