"""Which of several named files holds on a node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.file.selection import choose, config_names
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError


def test_what_a_configmaps_volume_adds_is_no_configuration() -> None:
    """Names that begin with two dots are left out, other hidden files are not."""
    assert config_names(["b", "..data", "..2026_11", ".hidden", "a"]) == [".hidden", "a", "b"]


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
