"""Unit files, environment files and configuration files: what is read from them, and changes that leave the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.install.texts import (
    NRI_PLUGIN,
    CannotEdit,
    command_words,
    environment_of,
    flag,
    mapping,
    service_of,
    toml,
    with_flag,
    with_former,
    with_key,
    with_nri,
)

URL = "unix:///run/criproxy/criproxy.sock"
NEW = f"--endpoint={URL}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("", f'ARGS="{NEW}"\n', id="empty"),
        pytest.param("ARGS=\n", f'ARGS="{NEW}"\n', id="no-value"),
        pytest.param("ARGS=-v=2\n", f'ARGS="-v=2 {NEW}"\n', id="unquoted"),
        pytest.param("ARGS='-v=2 --x'\n", f"ARGS='-v=2 --x {NEW}'\n", id="single-quotes"),
        pytest.param("#ARGS=1\nOTHER=1", f'#ARGS=1\nOTHER=1\nARGS="{NEW}"\n', id="no-end-of-line"),
        pytest.param('ARGS="--endpoint=a -v=2"\n', f'ARGS="-v=2 {NEW}"\n', id="replaces"),
        pytest.param('ARGS="-v=2 --endpoint a"\n', f'ARGS="-v=2 {NEW}"\n', id="replaces-two-words"),
        pytest.param("ARGS=1\nARGS=2\nB=3\n", f'ARGS=1\nARGS="2 {NEW}"\nB=3\n', id="last-line-counts"),
        pytest.param("ARGS=--endpoint-b=1\n", f'ARGS="--endpoint-b=1 {NEW}"\n', id="longer-name"),
    ],
)
def test_a_flag_in_an_environment_file(before: str, after: str) -> None:
    """The flag is the last one of the variable, once; all other lines stay."""
    assert with_flag(before, "ARGS", "endpoint", URL) == after
    assert with_flag(after, "ARGS", "endpoint", URL) == after


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("ARGS=-v=2 \\\n  --x\n", "ARGS is written over several lines", id="backslash"),
        pytest.param('ARGS="-v=2\n  --x"\n', "ARGS is written over several lines", id="quotes"),
        pytest.param('ARGS="-v=2" # old\n', "ARGS has text after its closing quote", id="text-after-the-quote"),
        pytest.param('ARGS="-v=2" "--x"\n', "ARGS has text after its closing quote", id="two-values"),
        pytest.param('A=1\nB="2\nC=3\n', "nothing closes the quote in line 2", id="never-closed"),
    ],
)
def test_a_variable_that_cannot_be_changed_safely(text: str, why: str) -> None:
    """It is left to people."""
    with pytest.raises(CannotEdit, match=why):
        with_flag(text, "ARGS", "endpoint", URL)


def test_a_line_within_the_value_of_another_variable() -> None:
    """What looks like a variable in there is none."""
    text = "A='1\nARGS=2\n'\n"
    assert with_flag(text, "ARGS", "endpoint", URL) == f'{text}ARGS="{NEW}"\n'
    assert with_flag('ARGS="-v \\" 2"\n', "ARGS", "endpoint", URL) == f'ARGS="-v \\" 2 {NEW}"\n'


FLAGS = st.from_regex(r"--[a-z]{1,7}(=[a-z0-9./:]{0,9})?", fullmatch=True)
"""None is ours, whose name is longer."""


@given(words=st.lists(FLAGS))
def test_a_flag_taken_back(words: list[str]) -> None:
    """What was added and taken back leaves the same words, in the same order."""
    before = f'# text\nARGS="{" ".join(words)}"\n'
    after = with_flag(before, "ARGS", "endpoint", URL)

    assert environment_of(after)["ARGS"].split() == [*words, NEW]
    assert environment_of(with_former("ARGS --endpoint", before, after))["ARGS"].split() == words


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("", f"key: {URL}\n", id="empty"),
        pytest.param("a: 1\nkey: x\nb: 2\n", f"a: 1\nkey: {URL}\nb: 2\n", id="replaces"),
        pytest.param("a:\n  key: x", f"a:\n  key: x\nkey: {URL}\n", id="deeper-key"),
        pytest.param('---\nkey: ""   # comment\n', f"---\nkey: {URL}\n", id="document-start"),
    ],
)
def test_a_key_of_a_yaml_file(before: str, after: str) -> None:
    """Only the line of the top-level key changes."""
    assert with_key(before, "key", URL) == after
    assert mapping(with_key(after, "key", None)) == {k: v for k, v in mapping(before).items() if k != "key"}


@pytest.mark.parametrize(
    "text", ['{"a": 1, "key": "x"}', "- a\n", "a: [\n", "a: 1\n...\n---\nb: 1\n", "key: |\n  x\n  y\n"]
)
def test_a_yaml_file_of_another_kind(text: str) -> None:
    """It is left to people."""
    with pytest.raises(CannotEdit):
        with_key(text, "key", URL)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("ExecStart=/bin/k \\\n  server \\\n\nRestart=always\n", "/bin/k server", id="empty-line"),
        pytest.param("ExecStart=/bin/k \\\n# why\n  ; more\n  server\n", "/bin/k server", id="comments-between"),
        pytest.param("# old \\\nExecStart=/bin/k\n", "/bin/k", id="comment-with-a-backslash"),
        pytest.param("ExecStart=/bin/k \\\n", "/bin/k", id="end-of-file"),
    ],
)
def test_lines_that_a_backslash_joins(text: str, words: str) -> None:
    """They are those that systemd joins."""
    assert service_of("k.service", [f"[Service]\n{text}"]).exec_start.split() == words.split()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("A=1 \\\n\nB=2\n", "1", id="empty-line-ends-it"),
        pytest.param("A=-v 2  --x=y # z \n", "-v 2  --x=y # z", id="unquoted-to-the-end"),
        pytest.param("A=1 \\\n  2\n", "1   2", id="backslash-joins"),
        pytest.param("A=a\\ b\\\\c 'd'\n", "a b\\c 'd'", id="backslashes-and-later-quotes"),
        pytest.param("A='1\n#2' \n", "1\n#2", id="quoted-lines"),
        pytest.param('A="\\$x \\y \\"z\\"\\\nw" \'v\' u\n', '$x \\y "z"wvu', id="pieces"),
        pytest.param("# A=1\n;A=2\nA\n  A = 3", "3", id="comments"),
    ],
)
def test_a_variable_of_an_environment_file(text: str, value: str) -> None:
    """It is read as systemd reads it: systemd.exec(5)."""
    assert environment_of(text)["A"] == value


def test_a_unit_with_drop_ins() -> None:
    """Later files add environment files and replace the command; an empty value resets; variables become words."""
    unit = "[Unit]\nExecStart=no\n[Service]\nEnvironment=A=1 'B=2 3'\n"
    unit += "EnvironmentFile=-/e/%N\nExecStart=/bin/k \\\n  --one\n"
    drop_in = "[Service]\nEnvironmentFile=/e/second\nExecStart=\nExecStart=/bin/k $B ${A}x $MISSING --config /c $C\n"
    service = service_of("kubelet.service", [unit, drop_in])

    assert service.environment_files == ("/e/kubelet", "/e/second")
    files = {"/e/kubelet": "C=first\n", "/e/second": "# C=no\nC='--v 4'\n"}
    variables = {**service.environment, **environment_of("".join(files.values()))}
    assert command_words(service.exec_start, variables) == ["/bin/k", "2", "3", "1x", "--config", "/c", "--v", "4"]
    assert service_of("kubelet.service", [unit]).exec_start == "/bin/k --one"


@pytest.mark.parametrize(
    ("words", "value"), [("--a=1 --a 2", "2"), ("--a", None), ("--ab=1", None), ("--a=", ""), ("", None)]
)
def test_a_flag_of_a_command_line(words: str, value: str | None) -> None:
    """The last one counts, in one word or two."""
    assert flag(words.split(), "a") == value


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("", f'version = 2\n\n[plugins."{NRI_PLUGIN}"]\n', id="no-file"),
        pytest.param("version = 3", f'version = 3\n\n[plugins."{NRI_PLUGIN}"]\n', id="no-table"),
        pytest.param(
            f'version = 2\n  [plugins."{NRI_PLUGIN}"]\n    disable = true\n    socket_path = "/x"\n    '
            'plugin_request_timeout = "2s"\n[debug]\nlevel = ""\n',
            f'version = 2\n  [plugins."{NRI_PLUGIN}"]\n    socket_path = "/x"\n[debug]\nlevel = ""\n',
            id="as-containerd-prints-it",
        ),
    ],
)
def test_nri_of_containerd(before: str, after: str) -> None:
    """It is on and waits longer; all else stays as it is, and a second time changes nothing."""
    header = f'[plugins."{NRI_PLUGIN}"]\n'
    found = with_nri(before)

    assert found == after.replace(header, f'{header}  plugin_request_timeout = "10s"\n  disable = false\n')
    assert with_nri(found) == found


@pytest.mark.parametrize("time", ["'30s'", "'10000ms'", "'1m0.5s'", "'1h'", "'+10s'", "12000000000"])
def test_the_time_that_users_gave_plugins_stays(time: str) -> None:
    """As Go reads it: a number with a unit, several of them, or nanoseconds."""
    text = f"version = 2\n[plugins.'{NRI_PLUGIN}']\nplugin_request_timeout = {time}\n"

    assert with_nri(text) == text.replace("]\n", "]\n  disable = false\n")


@pytest.mark.parametrize("time", ["'2s'", "'1s'", "'500ms'", "'2000ms'", "'9.9s'", "'0s'", "'10'", "'-1m'", "2", "''"])
def test_a_time_for_plugins_that_is_short_is_raised(time: str) -> None:
    """Also one that Go cannot read."""
    text = f"version = 2\n[plugins.'{NRI_PLUGIN}']\ndisable = false\nplugin_request_timeout = {time}\n"
    table = toml(with_nri(text))["plugins"][NRI_PLUGIN]

    assert table == {"disable": False, "plugin_request_timeout": "10s"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[plugins]\n", "it is of version 1, which has no NRI: begin it with 'version = 2', and change it"),
        ("# disabled_plugins = []\n", "it is of version 1, which has no NRI: begin it with 'version = 2'$"),
        ("version = ", "it is not valid TOML"),
        (f'version = 2\nplugins = {{"{NRI_PLUGIN}" = {{disable = true}}}}\n', "NRI cannot be switched on"),
    ],
)
def test_configurations_of_containerd_to_change_by_hand(text: str, why: str) -> None:
    """They say why."""
    with pytest.raises(CannotEdit, match=why):
        with_nri(text)
