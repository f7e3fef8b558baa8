"""A policy file is read only from where nobody else can write."""

import os
from pathlib import Path

import pytest

from criproxy.config import load
from criproxy.config.files import choose, read_group, read_text
from criproxy.errors import ConfigError
from tests.config.files import write

TEXT = "policy: none\n"
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def said(file: Path) -> list[str]:
    """The mistakes of reading *file*."""
    return [mistake.sentence for mistake in read_text(file)[1]]


@pytest.mark.parametrize(
    ("mode", "who"),
    [
        pytest.param(0o664, "its group", id="group"),
        pytest.param(0o646, "every user", id="world"),
        pytest.param(0o666, "every user", id="both"),
    ],
)
def test_a_file_that_others_can_write(tmp_path: Path, mode: int, who: str) -> None:
    """It is read to find all mistakes, but it is refused, with the command that puts it right."""
    file = write(tmp_path / "p.yaml", TEXT, mode)

    assert said(file) == [f"can be written by {who} (mode {mode:04o}): chmod go-w {file}"]
    assert read_text(file)[0] == TEXT


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640, 0o644, 0o755])
def test_a_file_that_only_its_owner_can_write(tmp_path: Path, mode: int) -> None:
    """It is trusted."""
    assert read_text(write(tmp_path / "p.yaml", TEXT, mode)) == (TEXT, [])


def test_a_directory_that_others_can_write(tmp_path: Path) -> None:
    """Who can write the directory can replace the file; in a sticky one, such as /tmp, they cannot."""
    file = write(tmp_path / "a b" / "p.yaml", TEXT)

    file.parent.chmod(0o775)
    assert said(file) == [f"its directory can be written by its group (mode 0775): chmod go-w '{file.parent}'"]
    file.parent.chmod(0o1777)
    assert said(file) == []


@ROOT_ONLY
def test_a_file_of_somebody_else(tmp_path: Path) -> None:
    """Only root's files, and those of who runs criproxy, are trusted."""
    file = write(tmp_path / "p.yaml", TEXT)
    os.chown(file, 4321, 0)

    assert said(file) == [f"belongs to user 4321, not to root: chown root {file}"]


def test_links(tmp_path: Path) -> None:
    """A link within the directory is followed, as tools that swap versions use them; one out of it is refused."""
    outside = write(tmp_path / "outside.yaml", TEXT)
    version = write(tmp_path / "etc" / "p1.yaml", TEXT).parent
    (version / "in.yaml").symlink_to("p1.yaml")
    (version / "out.yaml").symlink_to("../outside.yaml")
    (version / "nowhere.yaml").symlink_to("missing")
    (version / "loop.yaml").symlink_to("loop.yaml")

    assert read_text(version / "in.yaml") == (TEXT, [])
    assert said(version / "out.yaml") == [f"is a link to {outside}, outside its directory: put the file itself there"]
    assert said(version / "nowhere.yaml") == ["is a broken link"]
    assert said(version / "loop.yaml") == ["cannot be read: Too many levels of symbolic links"]


def test_a_link_through_a_directory_that_others_can_write(tmp_path: Path) -> None:
    """Every directory between the policy directory and the file counts."""
    file = write(tmp_path / "data" / "p.yaml", TEXT)
    file.parent.chmod(0o777)
    (tmp_path / "p.yaml").symlink_to("data/p.yaml")

    assert said(tmp_path / "p.yaml") == [
        f"its directory can be written by every user (mode 0777): chmod go-w {file.parent}"
    ]


def test_what_is_no_file(tmp_path: Path) -> None:
    """Directories, pipes and missing files are named as such; nobody waits for a pipe."""
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    write(tmp_path / "file", TEXT)

    assert said(tmp_path / "pipe.yaml") == ["is not a regular file"]
    assert said(tmp_path / "folder.yaml") == ["is a directory"]
    assert said(tmp_path / "missing.yaml") == ["there is no such file or directory"]
    assert said(tmp_path / "file" / "p.yaml") == ["cannot be read: Not a directory"]
    assert said(tmp_path / ("x" * 300)) == ["cannot be read: File name too long"]


def test_what_is_no_text(tmp_path: Path) -> None:
    """Size and encoding are checked before anything is parsed; a byte-order mark is no mistake."""
    assert said(write(tmp_path / "p", b"#" * 10_000_000)) == ["is 9.54 MiB, larger than the maximum of 1 MiB"]
    assert said(write(tmp_path / "p", b"a: 1\nb: \xff\n")) == [
        "the byte 0xFF is not UTF-8: save the file as UTF-8 text"
    ]
    assert read_text(tmp_path / "p")[1][0].line == 2
    assert said(write(tmp_path / "p", TEXT.encode("utf-16"))) == ["is UTF-16: save the file as UTF-8 text"]
    assert read_text(write(tmp_path / "p", TEXT.encode("utf-8-sig"))) == (TEXT, [])


# ---------------------------------------------------------------- which file of a directory is a node's


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
