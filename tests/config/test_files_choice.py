"""A node takes its own policy file, else its group's, else the default."""

from pathlib import Path

import pytest

from criproxy.config import load
from criproxy.config.files import choose, read_group
from criproxy.errors import ConfigError
from tests.config.files import write


@pytest.fixture(autouse=True)
def group_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the group of this machine would be written, so that no file of the machine counts."""
    monkeypatch.setattr("criproxy.config.files.GROUP_FILE", tmp_path / "group")
    return tmp_path / "group"


def fill(folder: Path, names: list[str]) -> Path:
    """Make a policy directory with files of these names."""
    for name in names:
        write(folder / name, "policy: none\n")
    return folder


ALL = ["node1.yaml", "group-edge.yaml", "default.yaml"]


@pytest.mark.parametrize(
    ("files", "group", "chosen", "reason"),
    [
        pytest.param(ALL, "edge", "node1.yaml", "the host name is node1", id="its-own"),
        pytest.param(ALL[1:], "edge", "group-edge.yaml", "the group is edge", id="its-groups"),
        pytest.param(ALL[1:], "core", "default.yaml", "it has no file for this host name or group", id="other-group"),
        pytest.param(ALL[1:], "", "default.yaml", "it has no file for this host name or group", id="no-group"),
        pytest.param(["node2.yaml", "default.yaml"], "", "default.yaml", "it has no file", id="other-node"),
    ],
)
def test_a_directory(tmp_path: Path, files: list[str], group: str, chosen: str, reason: str) -> None:
    """The most specific file wins, and the choice says why."""
    folder = fill(tmp_path / "policies", files)

    choice = choose(folder, "node1", group)

    assert choice.file == folder / chosen
    assert choice.reason.startswith(reason)


def test_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    """Whoever names a file gets it, also if it is missing: that is told when it is read."""
    assert choose(tmp_path / "x.yaml", "", "").file == tmp_path / "x.yaml"


def test_the_group_of_this_machine(tmp_path: Path, group_file: Path) -> None:
    """Without a group in the call, the group file says it."""
    folder = fill(tmp_path / "policies", ALL[1:])

    assert choose(folder, "node1").file.name == "default.yaml"
    write(group_file, "edge\n")
    assert choose(folder, "node1").file.name == "group-edge.yaml"
    assert load(folder, "node1").source == folder / "group-edge.yaml"


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        pytest.param("", 0o644, "must contain one word, the group of this node", id="empty"),
        pytest.param("a b\n", 0o644, "must contain one word", id="two-words"),
        pytest.param("a\n", 0o666, r"group: can be written by every user \(mode 0666\)", id="writable"),
        pytest.param("../x\n", 0o644, r"the group '\.\./x' cannot be part of the name", id="leads-out"),
    ],
)
def test_a_wrong_group_file(tmp_path: Path, group_file: Path, content: str, mode: int, message: str) -> None:
    """A group file that says nothing clear is an error, and no reason to take the default."""
    write(group_file, content, mode)

    with pytest.raises(ConfigError, match=message):
        choose(fill(tmp_path / "policies", ALL[1:]), "node1")


def test_no_group_file(group_file: Path) -> None:
    """A machine in no group has none."""
    assert read_group(group_file) is None


@pytest.mark.parametrize("hostname", ["", "../etc/x", ".hidden", "a/b", "-x", "x" * 300, "a\nb"])
def test_a_host_name_that_is_none(tmp_path: Path, hostname: str) -> None:
    """No host name leads out of the directory."""
    with pytest.raises(ConfigError, match=r"the host name .* cannot be part of the name of a policy file"):
        choose(tmp_path, hostname, "")


def test_an_empty_directory(tmp_path: Path) -> None:
    """A directory that says nothing about this node is an error, which names what was looked for."""
    message = "has no policy file for this node; criproxy looked for node1.yaml, group-edge.yaml, default.yaml"

    with pytest.raises(ConfigError, match=message):
        choose(tmp_path, "node1", "edge")


def test_a_link_to_nothing_is_not_passed_over(tmp_path: Path) -> None:
    """The node's own file counts even if it cannot be read: another policy would be a surprise."""
    folder = fill(tmp_path / "policies", ["default.yaml"])
    (folder / "node1.yaml").symlink_to("gone")

    with pytest.raises(ConfigError, match=r"node1\.yaml: is a broken link"):
        load(folder, "node1")
