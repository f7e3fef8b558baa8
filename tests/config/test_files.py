"""A policy file is read only from where nobody else can write."""

import os
from pathlib import Path

import pytest

from criproxy.config.files import read_text
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
