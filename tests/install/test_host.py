"""The files of a node below another root directory."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from criproxy.errors import CriproxyError
from criproxy.install.host import Attributes, CommandFailed, Host


def test_links_stay_below_the_root(tmp_path: Path) -> None:
    """Absolute links and `..` lead where they lead on the node, and never to this machine's files."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/absolute").symlink_to("/data/file")
    (tmp_path / "etc/upward").symlink_to("../../../../data")
    (tmp_path / "etc/loop").symlink_to("loop")
    host = Host(tmp_path)

    assert host.path("/etc/absolute") == tmp_path / "data/file"
    assert (host.path("/etc/upward/x"), host.path("/../../etc")) == (tmp_path / "data/x", tmp_path / "etc")
    assert host.path("/etc/loop") == tmp_path / "etc/loop"


def test_a_file_keeps_its_attributes(tmp_path: Path) -> None:
    """A new content keeps mode and owner; a restored file gets its former time, too; a link stays a link."""
    host = Host(tmp_path)
    file = tmp_path / "file"
    file.write_text("old")
    file.chmod(0o640)
    os.utime(file, ns=(5, 5))
    (tmp_path / "link").symlink_to("/file")
    before = host.attributes("/link")

    host.write("/link", "new")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", 0o640)
    host.write("/link", "old", before)
    assert (file.stat().st_mtime_ns, (tmp_path / "link").is_symlink()) == (5, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


@pytest.fixture(params=[0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """What an administrator's shell may have."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def test_new_directories(umask: None, tmp_path: Path) -> None:
    """They are made with the file, open to readers whatever the umask is, and removed if they are empty."""
    host = Host(tmp_path)
    folders = host.missing_folders("/a/b/c")
    host.write("/a/b/c", "", Attributes(0o644, os.geteuid(), os.getegid(), 0))

    assert folders == ["/a", "/a/b"]
    assert [(tmp_path / folder).stat().st_mode & 0o777 for folder in ("a", "a/b")] == [0o755, 0o755]
    host.remove_folders(folders)
    assert (tmp_path / "a/b/c").exists()
    host.remove("/a/b/c")
    host.remove_folders(folders)
    assert not (tmp_path / "a").exists()


def test_failed_programs() -> None:
    """The message has the command, its status and the end of what it said."""
    host = Host()

    with pytest.raises(CommandFailed, match="'sh -c echo no >&2; exit 4' exited with status 4: no"):
        host.must(["sh", "-c", "echo no >&2; exit 4"])
    with pytest.raises(CommandFailed, match="there is no program nowhere-to-be-found"):
        host.must(["nowhere-to-be-found"])
    with pytest.raises(CommandFailed, match=r"did not end within 0\.05 s"):
        host.run(["sleep", "60"], timeout_s=0.05)


def test_one_at_a_time(tmp_path: Path) -> None:
    """A second installation ends with a message, and a lock leaves no file."""
    (tmp_path / "var/lib").mkdir(parents=True)
    host = Host(tmp_path)

    with host.lock(), pytest.raises(CriproxyError, match="another 'criproxy install'"), host.lock():
        pass
    with host.lock():
        pass
    assert list((tmp_path / "var/lib").iterdir()) == []


@pytest.mark.timeout(10)
def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    """Nobody may ever write to it."""
    os.mkfifo(tmp_path / "kubelet")

    with pytest.raises(OSError, match="it is not a regular file"):
        Host(tmp_path).read("/kubelet")
