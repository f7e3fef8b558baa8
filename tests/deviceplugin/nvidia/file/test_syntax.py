"""What NVIDIA's file may say, and how it is told what is wrong with one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.file.syntax import read_file
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError
from criproxy.deviceplugin.nvidia.options import ResourcePattern


def mistake(text: str) -> PluginConfigError:
    """What is wrong with a file."""
    with pytest.raises(PluginConfigError) as error:
        read_file(text)
    assert error.value.stage == "parse"
    return error.value


def test_only_what_a_file_sets_is_set() -> None:
    """A value of null and a key that nobody knows set nothing."""
    file = read_file("flags: {gdsEnabled: off, mofedEnabled: null, plugin: {passDeviceSpecs: y}, other: 1}\nmore: 2")

    assert file.flags == {"flags.gdsEnabled": False, "flags.plugin.passDeviceSpecs": True}


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        pytest.param("flags: {MIGSTRATEGY: single}", "single", id="capitals"),
        pytest.param("FLAGS: {mi\u212agStrategy: single}", None, id="another-word"),
        pytest.param("flags: {mig\u017ftrategy: single}", "single", id="long-s-folds-too"),
        pytest.param("flags: {migStrategy: none, MigStrategy: single}", "none", id="later-in-the-order-of-bytes-wins"),
        pytest.param("flags: {MigStrategy: single, migStrategy: null}", None, id="null-unsets"),
        pytest.param("Flags: {migStrategy: single}\nflags: {gdsEnabled: true}", "single", id="sections-are-merged"),
    ],
)
def test_the_case_of_a_key_does_not_matter(text: str, strategy: str | None) -> None:
    """Go finds a field whatever the case of its key."""
    assert read_file(text).flags.get("flags.migStrategy") == strategy


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        pytest.param("version: v2", "value", "line 1: unknown version: v2; write 'version: v1'", id="version"),
        pytest.param("x: 1\nVersion: 1.50", "value", "line 2: unknown version: 1.5; write 'version: v1'", id="number"),
        pytest.param("version: off", "value", "line 1: unknown version: false; write 'version: v1'", id="bool"),
        pytest.param(
            "version: []", "type", "line 1: version: cannot be []; write a text; put it in quotes", id="list-as-version"
        ),
        pytest.param("- 1", "type", "line 1: the file: cannot be [1]; write a mapping of keys to values", id="list"),
        pytest.param(
            'flags:\n  gdsEnabled: "true"',
            "type",
            'line 2: flags.gdsEnabled: cannot be "true"; write true or false, without quotes',
            id="text-as-bool",
        ),
        pytest.param(
            "flags:\n  nvidiaDriverRoot: 5",
            "type",
            "line 2: flags.nvidiaDriverRoot: cannot be 5; write a text; put it in quotes",
            id="number-as-text",
        ),
        pytest.param(
            "flags: {plugin: {deviceListStrategy: {b: 1, a: <}}}",
            "value",
            'line 1: flags.plugin.deviceListStrategy: invalid deviceListStrategy: {"a":"\\u003c","b":1}; '
            "write a strategy or a list of strategies",
            id="strategies",
        ),
        pytest.param(
            "flags: {gfd: {sleepInterval: 1d}}",
            "value",
            'line 1: flags.gfd.sleepInterval: time: unknown unit "d" in duration "1d"; '
            "write a number with a unit, such as 60s or 1h30m, or infinite",
            id="duration",
        ),
        pytest.param(
            "resources:\n  gpus:\n  - name: gpu",
            "value",
            "line 3: resources.gpus[0]: resources must have a 'pattern' field set",
            id="pattern",
        ),
        pytest.param(
            "imex: {channelIDs: [0, 1.5]}",
            "type",
            "line 1: imex.channelIDs[1]: cannot be 1.5; write a whole number, without quotes",
            id="fraction",
        ),
        pytest.param(
            "imex:\n  channelIDs: 0", "type", "line 2: imex.channelIDs: cannot be 0; write a list", id="no-list"
        ),
    ],
)
def test_a_mistake_says_where_what_and_what_would_be_right(text: str, kind: str, sentence: str) -> None:
    """NVIDIA's message, where it has one of its own, stands between line and key and our advice."""
    error = mistake(text)

    assert str(error) == sentence
    assert error.mistake_class == kind


@pytest.mark.parametrize(
    ("text", "part"),
    [
        pytest.param("flags: [1]\nsharing: {mps: {}}", "no resources specified", id="value-before-type"),
        pytest.param("flags: {gfd: {oneshot: 1, sleepInterval: x}}", "time: invalid duration", id="in-a-section"),
        pytest.param("imex: 5\nflags: 6", "flags: cannot be 6", id="first-of-two-types-by-key"),
        pytest.param("version: v2\nimex: 5", "imex: cannot be 5", id="version-last"),
        pytest.param("version: v2\nimex: .nan", "unsupported value: NaN", id="syntax-first"),
        pytest.param("sharing: {mps: {renameByDefault: 1}, timeSlicing: {}}", "mps.renameByDefault", id="type-in-mps"),
    ],
)
def test_of_several_mistakes_the_one_that_nvidia_tells_is_told(text: str, part: str) -> None:
    """Go goes on behind a wrong type, but not behind what NVIDIA's own types refuse."""
    assert part in str(mistake(text))


def test_a_long_value_is_quoted_in_part() -> None:
    """A sentence stays readable whatever the file says."""
    assert len(str(mistake(f"flags: {{gdsEnabled: {'x' * 10_000}}}"))) < 400


def test_patterns_get_full_names() -> None:
    """Keys of an entry count letter by letter."""
    file = read_file("resources: {GPUS: [{pattern: '*T4*', name: t4, Name: x}], mig: null}")

    assert file.gpu_resources == (ResourcePattern(pattern="*T4*", name="nvidia.com/t4"),)
    assert file.mig_resources == ()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param("envvar", ("envvar",), id="one"),
        pytest.param("[envvar, cdi-cri]", ("envvar", "cdi-cri"), id="list"),
        pytest.param("[]", (), id="none"),
        pytest.param("[null]", ("",), id="null-in-a-list"),
        pytest.param("'envvar,cdi-cri'", ("envvar,cdi-cri",), id="no-commas-in-a-file"),
        pytest.param("null", None, id="not-set"),
    ],
)
def test_list_strategies_are_one_text_or_a_list(said: str, expected: tuple[str, ...] | None) -> None:
    """Whether they exist is checked later, with flags and variables."""
    file = read_file(f"flags: {{plugin: {{deviceListStrategy: {said}}}}}")

    assert file.flags.get("flags.plugin.deviceListStrategy") == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param("5", 5, id="nanoseconds"),
        pytest.param("1.9", 1, id="fraction-of-one"),
        pytest.param("1e30", -(2**63), id="beyond-64-bits-as-the-processor-converts"),
        pytest.param("1m", 60_000_000_000, id="text"),
        pytest.param("infinite", "infinite", id="for-ever"),
    ],
)
def test_a_bare_number_is_nanoseconds(said: str, expected: object) -> None:
    """A duration is a text with units or a number without."""
    assert read_file(f"flags: {{gfd: {{sleepInterval: {said}}}}}").flags == {"flags.gfd.sleepInterval": expected}


WORDS = st.sampled_from(
    "version flags resources sharing imex plugin gfd gpus mig timeSlicing mps name replicas devices rename pattern "
    "channelIDs required v1 all nvidia.com/gpu sleepInterval deviceListStrategy migStrategy".split()
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=15,
)


@given(VALUES)
def test_any_values_are_read_or_are_a_mistake(data: object) -> None:
    """Known keys in wrong places and of wrong types lead to no other error."""
    try:
        read_file(json.dumps(data))
    except PluginConfigError as error:
        assert error.mistake_class in ("value", "type")  # noqa: PT017 (either is fine)
        assert error.line == 1  # noqa: PT017
