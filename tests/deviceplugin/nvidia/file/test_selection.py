"""Which of several named files holds on a node."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.file.selection import choose, choose_as_config_manager, config_names
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError

ALL = ("named", "single", "empty")


def test_what_a_configmaps_volume_adds_is_no_configuration() -> None:
    """Names that begin with two dots are left out, other hidden files are not."""
    assert config_names(["b", "..data", "..2026_11", ".hidden", "a"]) == [".hidden", "a", "b"]


@pytest.mark.parametrize(
    ("names", "label", "default", "fallbacks", "expected"),
    [
        pytest.param("a b default", "a", "b", ALL, "a", id="label"),
        pytest.param("a b default", "", "b", ALL, "b", id="default-of-the-flag"),
        pytest.param("a b default", "", "", ALL, "default", id="named"),
        pytest.param("a", "", "", ALL, "a", id="single"),
        pytest.param("a b", "", "", ALL, "", id="empty"),
        pytest.param("a b default", "", "", ["empty", "named"], "", id="in-the-order-listed"),
        pytest.param("default", "", "", ["named", "bogus"], "default", id="unknown-behind-the-one-that-works"),
    ],
)
def test_config_manager_chooses(names: str, label: str, default: str, fallbacks: Sequence[str], expected: str) -> None:
    """The label, else the flag's default, else the first fallback that works."""
    assert choose_as_config_manager(names.split(), label, default, fallbacks).name == expected


@pytest.mark.parametrize(
    ("names", "label", "default", "fallbacks", "message"),
    [
        pytest.param("", "a", "", ALL, "no configuration files available", id="none"),
        pytest.param("a", "b", "a", ALL, "specified config b does not exist", id="label-of-no-file"),
        pytest.param("a", "", "b", ALL, "specified config  does not exist", id="default-of-no-file"),
        pytest.param("a b", "", "", ["single"], "no config was set, no default was provided, and all", id="none-works"),
        pytest.param("a b", "", "", ["named", "bogus"], "unknown fallback strategy: bogus", id="unknown"),
    ],
)
def test_config_manager_refuses(names: str, label: str, default: str, fallbacks: Sequence[str], message: str) -> None:
    """The words are NVIDIA's, its missing name included."""
    with pytest.raises(PluginConfigError) as error:
        choose_as_config_manager(names.split(), label, default, fallbacks)

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("names", "explicit", "host", "groups", "expected"),
    [
        pytest.param("a host default", "a", "host", [], "a", id="explicit"),
        pytest.param("a host group default", "", "host", ["group"], "host", id="host"),
        pytest.param("a two one default", "", "host", ["none", "one", "two"], "one", id="first-group"),
        pytest.param("a default", "", "host", ["group"], "default", id="default"),
        pytest.param("a", "", "host", ["group"], "a", id="only-one"),
    ],
)
def test_our_own_order(names: str, explicit: str, host: str, groups: list[str], expected: str) -> None:
    """An option, the host's name, a group's, `default`, the only one; the reason says which of them."""
    choice = choose(names.split(), explicit, host, groups)

    assert choice.name == expected
    assert choice.reason


@pytest.mark.parametrize(
    ("names", "explicit", "message"),
    [
        pytest.param("a b", "c", "specified config c does not exist; there are a, b", id="explicit-of-no-file"),
        pytest.param("", "c", "specified config c does not exist; there are none", id="explicit-of-none"),
        pytest.param(
            "a b", "", "none of the files a, b is for this host; name one of them host, group, default", id="none-fits"
        ),
        pytest.param("", "", "no configuration files available", id="none"),
    ],
)
def test_our_own_order_refuses(names: str, explicit: str, message: str) -> None:
    """What is missing is told with what there is."""
    with pytest.raises(PluginConfigError) as error:
        choose(names.split(), explicit, "host", ["group"])

    assert str(error.value) == message


NAMES = st.sampled_from(["default", "host", "group", "a", "b"])


@given(st.sets(NAMES), NAMES | st.just(""), st.lists(NAMES))
def test_a_choice_is_always_a_file_that_exists(names: set[str], host: str, groups: list[str]) -> None:
    """Neither order makes up a file, and an explicit one is never passed over."""
    for explicit in ("", *names):
        try:
            choice = choose(names, explicit, host, groups)
        except PluginConfigError:
            assert len(names) != 1
            continue
        assert choice.name in names
        assert not explicit or choice.name == explicit
