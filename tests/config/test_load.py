"""Policy files are read, and every mistake is named with its place."""

from pathlib import Path

import pytest

from criproxy.config import Settings, load
from criproxy.errors import ConfigError
from criproxy.policy.none import NonePolicy
from criproxy.policy.static import StaticPolicy


def read(tmp_path: Path, text: str) -> Settings:
    """The settings of a file with this text."""
    (tmp_path / "p.yaml").write_text(text)
    return load(tmp_path / "p.yaml", "node1")


def test_a_full_file(tmp_path: Path) -> None:
    """All options arrive, and the policy can be built."""
    settings = read(tmp_path, 'policy: static\nreservedCpus: "0-1,8"\nonError: refuse\n')

    assert settings.common.policy == "static"
    assert settings.common.on_error == "refuse"
    assert settings.options.reserved_cpus == {0, 1, 8}
    assert settings.source == tmp_path / "p.yaml"
    assert isinstance(settings.build_policy(), StaticPolicy)


def test_defaults(tmp_path: Path) -> None:
    """Only the policy must be named."""
    settings = read(tmp_path, "\ufeffpolicy: none\n")

    assert settings.common.on_error == "shared"
    assert settings.options.reserved_cpus == frozenset()
    assert isinstance(settings.build_policy(), NonePolicy)


@pytest.mark.parametrize(
    ("written", "cpus"),
    [
        pytest.param("0", {0}, id="number"),
        pytest.param("0-1", {0, 1}, id="plain-text"),
        pytest.param('"0,2"', {0, 2}, id="quoted"),
        pytest.param("[0, 3]", {0, 3}, id="list"),
        pytest.param('""', set(), id="empty"),
    ],
)
def test_ways_to_write_cpus(tmp_path: Path, written: str, cpus: set[int]) -> None:
    """CPUs are a text in kernel notation, a number or a list of numbers."""
    assert read(tmp_path, f"policy: static\nreservedCpus: {written}\n").options.reserved_cpus == cpus


MISTAKES = [
    pytest.param("", "1:1: the file is empty; it needs at least 'policy: NAME' with one of none, static", id="empty"),
    pytest.param("# no more\n", "1:1: the file is empty", id="comments-only"),
    pytest.param("- a\n", "1:1: must be options such as 'policy: NAME'", id="a-list"),
    pytest.param("onError: pass\n", "1:1: the option 'policy' is missing", id="no-policy"),
    pytest.param(
        "policy: statik\n", "1:9: policy: there is no policy 'statik', but none, static; did you mean 'static'?", id="p"
    ),
    pytest.param("policy: 3\n", "1:9: policy: must be a valid string", id="policy-number"),
    pytest.param(
        "policy: static\nreservedcpus: 0\n",
        "2:1: there is no option 'reservedcpus'; did you mean 'reservedCpus'?",
        id="unknown-key",
    ),
    pytest.param(
        "policy: none\nonerror: pass\n", "2:1: there is no option 'onerror'; did you mean 'onError'?", id="case"
    ),
    pytest.param(
        "policy: none\nreserved_cpus: 0\n", "2:1: there is no option 'reserved_cpus'; did you", id="python-name"
    ),
    pytest.param("policy: none\nzzz: 0\n", "2:1: there is no option 'zzz'\n", id="nothing-near"),
    pytest.param("policy: none\n  \npolicy: static\n", "3:1: 'policy' is given twice, first in line 1", id="duplicate"),
    pytest.param("policy: static\nreservedCpus: 0-\n", "2:15: reservedCpus: '0-' in '0-' is neither", id="bad-cpuset"),
    pytest.param("policy: static\nreservedCpus: 5000\n", "2:15: reservedCpus: 5000 in '5000' is beyond", id="large-id"),
    pytest.param("policy: static\nreservedCpus: true\n", '2:15: reservedCpus: must be CPUs such as "0-3,8"', id="bool"),
    pytest.param("policy: static\nreservedCpus:\n", "2:14: reservedCpus: must be CPUs", id="null"),
    pytest.param("policy: static\nreservedCpus: [0, -1]\n", "2:15: reservedCpus: must be CPUs", id="negative"),
    pytest.param(
        "policy: none\nonError: Shard\n", "2:10: onError: must be 'shared', 'pass' or 'refuse'; did you", id="choice"
    ),
    pytest.param("policy:\n\tstatic\n", "2:1: while scanning for the next token found character '\\t'", id="tab"),
    pytest.param("policy: [\n", "2:1: while parsing a flow node", id="open-bracket"),
    pytest.param("policy: none\n---\npolicy: none\n", "2:1: expected a single document", id="two-documents"),
    pytest.param("policy: !!python/object:os.x y\n", "1:9: could not determine a constructor", id="python-tag"),
    pytest.param("policy: none\nx: 2024-13-45\n", "2:4: month must be in 1..12", id="impossible-date"),
    pytest.param("policy: \x01\n", "1:9: the character U+0001 is not allowed in YAML", id="control-character"),
    pytest.param("? [a]\n: b\n", "1:3: a key must be a plain word", id="complex-key"),
    pytest.param("[" * 100 + "]" * 100, "1:34: nested deeper than 32 levels", id="deep"),
    pytest.param("[" * 9000, "1:1: nested deeper than 32 levels", id="deeper-than-python"),
    pytest.param("x: &x [*x]\n", "nested deeper than 32 levels", id="contains-itself"),
    pytest.param(
        "a: &a [1,1,1,1,1,1,1,1]\n"
        + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 8)}]\n" for a, b in zip("abcde", "bcdef", strict=True)),
        "more than 20000 values",
        id="bomb",
    ),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_mistakes(tmp_path: Path, text: str, message: str) -> None:
    """A mistake is told as file:line:column, what is wrong, and the nearest valid name."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)

    assert f"{tmp_path}/p.yaml:" in str(caught.value)
    assert message in f"{caught.value}\n"


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    """Nobody has to run a check once per mistake: they come together, in the order of the file."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "reservedCpus: x\nonError: maybe\npolicy: static\nextra: 1\nextra: 2\n")

    places = [line.removeprefix(f"{tmp_path}/p.yaml:").split(": ")[0] for line in str(caught.value).splitlines()]
    assert places == ["1:15", "2:10", "4:1", "5:1"]


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        pytest.param(["node1.yaml", "default.yaml"], "node1.yaml", id="its-own"),
        pytest.param(["node2.yaml", "default.yaml"], "default.yaml", id="default"),
    ],
)
def test_a_directory(tmp_path: Path, files: list[str], chosen: str) -> None:
    """From a directory the node takes its own file, else the default."""
    for name in files:
        (tmp_path / name).write_text("policy: none\n")

    assert load(tmp_path, "node1").source == tmp_path / chosen


@pytest.mark.parametrize(
    ("hostname", "message"),
    [
        pytest.param("node1", "has no policy file for this node: neither node1.yaml nor default.yaml", id="none-there"),
        pytest.param("../etc/x", "cannot be the name of a policy file", id="leads-out"),
        pytest.param("", "cannot be the name of a policy file", id="no-name"),
    ],
)
def test_a_directory_without_a_file(tmp_path: Path, hostname: str, message: str) -> None:
    """A directory that says nothing about this node is an error."""
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, hostname)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing, oversized and binary files are named."""
    with pytest.raises(ConfigError, match="there is no such file; --config names"):
        load(tmp_path / "missing.yaml", "node1")
    (tmp_path / "large.yaml").write_bytes(b"#" * 10_000_000)
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load(tmp_path / "large.yaml", "node1")
    (tmp_path / "binary.yaml").write_bytes(b"policy: none\nx: \xff\n")
    with pytest.raises(ConfigError, match=r"binary.yaml:2:4: is not UTF-8 text"):
        load(tmp_path / "binary.yaml", "node1")
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    with pytest.raises(ConfigError, match=r"loop.yaml: cannot be read: "):
        load(tmp_path / "loop.yaml", "node1")
