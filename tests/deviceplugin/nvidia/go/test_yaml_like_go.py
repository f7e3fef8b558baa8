"""The file's YAML is read as Go's library reads it, and what cannot be read is told with its line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.go import yaml_like_go
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError
from criproxy.deviceplugin.nvidia.go.yaml_like_go import Value, read_yaml


def plain(value: Value) -> object:
    """The data of *value*, without lines."""
    if isinstance(value.data, list):
        return [plain(item) for item in value.data]
    if isinstance(value.data, dict):
        return {key: plain(item) for key, item in value.data.items()}
    return value.data


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        pytest.param("1:0", "1:0", id="no-number-of-base-60"),
        pytest.param("190:20:30", "190:20:30", id="no-number-of-base-60-with-hours"),
        pytest.param("2026-01-01", "2026-01-01", id="date-as-text"),
        pytest.param("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00", id="time-as-text"),
        pytest.param("012", 10, id="octal-of-yaml-1.1"),
        pytest.param("0o12", 10, id="octal-of-yaml-1.2"),
        pytest.param("08", 8.0, id="no-octal-but-a-float"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("-0x1f", -31, id="hexadecimal-below-zero"),
        pytest.param("0b101", 5, id="binary"),
        pytest.param("1_000", 1000, id="underscore"),
        pytest.param("_1", "_1", id="underscore-first"),
        pytest.param("+3", 3, id="plus"),
        pytest.param("1e1", 10.0, id="exponent-without-point"),
        pytest.param("1.5e-3", 0.0015, id="exponent-with-point"),
        pytest.param("2.", 2.0, id="point-last"),
        pytest.param(".5", 0.5, id="point-first"),
        pytest.param("1e400", "1e400", id="too-large-for-a-float"),
        pytest.param("18446744073709551615", 2**64 - 1, id="largest-unsigned"),
        pytest.param("18446744073709551616", 2.0**64, id="larger-than-64-bits"),
        pytest.param("-9223372036854775808", -(2**63), id="least-signed"),
        pytest.param("y", True, id="y"),
        pytest.param("Off", False, id="off"),
        pytest.param("No", False, id="no"),
        pytest.param("yEs", "yEs", id="no-such-bool"),
        pytest.param("~", None, id="tilde"),
        pytest.param("", None, id="nothing"),
        pytest.param("'no'", "no", id="quoted"),
        pytest.param("! 5", "5", id="mark-without-a-tag"),
        pytest.param(".5_0", 0.5, id="underscore-behind-a-point"),
        pytest.param("._5", "._5", id="underscore-beside-a-point"),
        pytest.param("1._5", 1.5, id="underscore-anywhere-behind-a-digit"),
        pytest.param("a\tb", "a\tb", id="tab-in-a-text"),
        pytest.param("a\t", "a", id="tab-behind-a-text"),
        pytest.param("!!str 5", "5", id="tagged-text"),
        pytest.param("!!int '5'", 5, id="tagged-integer"),
        pytest.param("!!float 5", 5.0, id="tagged-float"),
        pytest.param("!!binary aGVsbG8=", "hello", id="tagged-binary"),
        pytest.param("!mine 5", "5", id="foreign-tag"),
    ],
)
def test_a_word_means_what_it_means_to_go(word: str, expected: object) -> None:
    """A value has the type and the value that NVIDIA's plugin sees."""
    value = read_yaml(f"key: {word}")

    found = plain(value)
    assert found == {"key": expected}
    assert isinstance(found, dict)
    assert type(found["key"]) is type(expected)


KEYS = {"1": "a", "true": "b", "2.5": "c", "1e+06": "d", ".inf": "e"}
MERGED = {"a": {"k": 1, "l": 2}, "b": {"k": 3, "l": 2}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", None, id="empty"),
        pytest.param("# nothing\n", None, id="comment"),
        pytest.param("---\n", None, id="empty-document"),
        pytest.param("a: 1\n---\n: not [ yaml", {"a": 1}, id="only-the-first-document"),
        pytest.param("a: 1\n...\n@", {"a": 1}, id="nothing-behind-the-end"),
        pytest.param("a: 1\na: 2", {"a": 2}, id="last-of-the-same-key"),
        pytest.param("1: a\ntrue: b\n2.50: c\n1e6: d\n.inf: e", KEYS, id="keys"),
        pytest.param('{\n\t"a":\t[1,\n\t\t2]\n}', {"a": [1, 2]}, id="json-with-tabs"),
        pytest.param("a:\tb\t# c\n", {"a": "b"}, id="tabs-between-words"),
        pytest.param("\ufeffa: b\r\nc: d\r\n", {"a": "b", "c": "d"}, id="mark-and-windows-lines"),
        pytest.param("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}, id="anchor-again"),
        pytest.param("a: &x {k: 1, l: 2}\nb:\n  <<: *x\n  k: 3", MERGED, id="merge"),
        pytest.param("a: &x {k: 1}\nb: {k: 3, <<: *x}", {"a": {"k": 1}, "b": {"k": 1}}, id="merge-below-a-key-wins"),
        pytest.param("b: {<<: [{k: 1}, {k: 2, l: 3}]}", {"b": {"k": 1, "l": 3}}, id="first-of-several-merged"),
        pytest.param("b: {'<<': 1}", {"b": {"<<": 1}}, id="quoted-is-no-merge"),
    ],
)
def test_a_document_is_what_it_is_to_go(text: str, expected: object) -> None:
    """Keys, merges, anchors, tabs and documents are taken as NVIDIA's plugin takes them."""
    assert plain(read_yaml(text)) == expected


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        pytest.param("a: 1\n\tb: 2", 2, "a tab where", id="tab-as-indentation"),
        pytest.param("a: {b: 1", 1, "expected ',' or '}'", id="not-closed"),
        pytest.param("a: 1\nb: *x", 2, "unknown anchor 'x'", id="unknown-anchor"),
        pytest.param("a: &x [*x]", 1, "contains itself", id="anchor-in-itself"),
        pytest.param("a:\n  <<: 5", 2, "map merge", id="merge-of-a-number"),
        pytest.param("a: 1\n~: 2", 2, "a key is missing", id="null-as-key"),
        pytest.param("18446744073709551615: 1", 1, "too large a number for a key", id="huge-key"),
        pytest.param("? [1]\n: 2", 1, "not a list", id="list-as-key"),
        pytest.param("a: 1\nb: .inf", 2, "unsupported value: +Inf", id="infinity"),
        pytest.param("a: .nan", 1, "unsupported value: NaN", id="no-number"),
        pytest.param("a: 1\nb: \x07", 2, "control character", id="control-character"),
        pytest.param('a: "\\ud800"', 1, "not a character", id="surrogate"),
        pytest.param("%YAML 1.2\n---\na: 1", 1, "incompatible", id="yaml-1.2"),
        pytest.param("a: !!int x", 1, "cannot decode !!str `x` as a !!int", id="unfit-tag"),
        pytest.param("a: !!binary '*'", 1, "base64", id="unfit-binary"),
        pytest.param("[" * 500 + "]" * 500, 1, "nested deeper", id="deep"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(text: str, line: int, part: str) -> None:
    """A mistake of syntax says where it is and what it is."""
    with pytest.raises(PluginConfigError) as error:
        read_yaml(text)

    assert error.value.mistake_class == "syntax"
    assert error.value.line == line
    assert part in str(error.value)


def test_aliases_cannot_make_a_small_file_large() -> None:
    """Each use of an alias counts as all that it stands for."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]

    with pytest.raises(PluginConfigError, match=f"more than {yaml_like_go.MAX_VALUES} values"):
        read_yaml("\n".join(lines))


def test_every_value_knows_its_line() -> None:
    """A mistake found later can say where it is."""
    top = read_yaml("a:\n  b:\n  - 1\n  - c: 2\n").data

    assert isinstance(top, dict)
    below = top["a"].data
    assert isinstance(below, dict)
    items = below["b"].data
    assert isinstance(items, list)
    assert [item.line for item in items] == [3, 4]


CHARS = st.characters(codec="utf-8", max_codepoint=0xFFFF, categories=["L", "N", "P", "Z", "S"])
"""JSON may write others as two escapes, which Go's YAML library refuses."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(CHARS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc-<", min_size=1), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.sampled_from([None, "\t", 2]))
def test_json_is_yaml(data: object, indent: str | int | None) -> None:
    """Whatever JSON says is read as what it is, however it is indented."""
    assert plain(read_yaml(json.dumps(data, indent=indent))) == data


@given(st.text(max_size=60))
def test_any_text_is_read_or_is_a_mistake(text: str) -> None:
    """No text leads to another error."""
    try:
        read_yaml(text)
    except PluginConfigError as error:
        assert error.mistake_class == "syntax"  # noqa: PT017 (either is fine)


@given(st.text("-?:,[]{}#&*!|>'\"%@` \n\tab0", max_size=40))
def test_any_punctuation_is_read_or_is_a_mistake(text: str) -> None:
    """No combination of YAML's signs leads to another error."""
    try:
        read_yaml(text)
    except PluginConfigError as error:
        assert error.mistake_class == "syntax"  # noqa: PT017 (either is fine)
