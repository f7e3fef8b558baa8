"""Addresses of Unix sockets, and who owns the file."""

import os
import socket
import stat
from pathlib import Path

import pytest

from criproxy.errors import CriproxyError, UsageError
from criproxy.wire.sockets import PATH_MAX_BYTES, listen, unix_path


@pytest.mark.parametrize("address", ["unix:///run/a/b.sock", "unix:/run/a/b.sock", "/run/a/b.sock"])
def test_an_address_is_a_path(address: str) -> None:
    """The forms of the kubelet and of gRPC, and a bare path, mean the same."""
    assert unix_path(address, "--listen") == "/run/a/b.sock"


NO_ADDRESSES = "unix:// unix://run/x.sock run/x.sock tcp://127.0.0.1:1 unix:///run/ unix:///a\0b @abstract npipe://./x"


@pytest.mark.parametrize("address", ["", *NO_ADDRESSES.split(" "), "unix:///" + "x" * PATH_MAX_BYTES])
def test_what_is_no_address_is_refused(address: str) -> None:
    """The sentence names the option."""
    with pytest.raises(UsageError, match=r"^--listen: "):
        unix_path(address, "--listen")


def test_the_longest_path_works(tmp_path: Path) -> None:
    """A path of exactly the allowed length can be listened on."""
    path = f"{tmp_path}/".ljust(PATH_MAX_BYTES, "x")

    listener = listen(unix_path(path, "--listen"), 0o660)

    assert listener.path == path
    listener.close()


def test_a_new_socket(tmp_path: Path) -> None:
    """Directory and file have the modes that the design wants, whatever the umask, and the file goes at the end."""
    old = os.umask(0)
    try:
        listener = listen(str(tmp_path / "new" / "dir" / "x.sock"), 0o660)
    finally:
        os.umask(old)
    path = Path(listener.path)

    assert stat.S_ISSOCK(path.stat().st_mode)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o660, 0o755)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(listener.path)
    listener.close()
    assert not path.exists()


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    """What a killed daemon left behind keeps nobody from starting."""
    path = str(tmp_path / "x.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)

    listener = listen(path, 0o660)

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    listener.close()


@pytest.mark.parametrize("backlog", [0, 2], ids=["full", "free"])
def test_a_live_socket_is_left_alone(tmp_path: Path, backlog: int) -> None:
    """Another program's socket stays, also if that is too busy to accept, and the error says what to do."""
    path = str(tmp_path / "x.sock")
    with socket.socket(socket.AF_UNIX) as alive, socket.socket(socket.AF_UNIX) as first:
        alive.bind(path)
        alive.listen(backlog)
        first.connect(path)

        with pytest.raises(CriproxyError, match="in use by another process"):
            listen(path, 0o660)

        assert Path(path).is_socket()


def test_two_of_us_cannot_share(tmp_path: Path) -> None:
    """The lock is held as long as the socket is, and not longer."""
    path = str(tmp_path / "x.sock")
    first = listen(path, 0o660)

    with pytest.raises(CriproxyError, match="in use by another criproxy process"):
        listen(path, 0o660)

    first.close()
    listen(path, 0o660).close()


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_nothing_but_a_socket_is_removed(tmp_path: Path, kind: str) -> None:
    """A typing mistake does not cost anybody a file, and makes no lock file either."""
    path = tmp_path / "x.sock"
    match kind:
        case "file":
            path.write_text("precious")
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to("elsewhere")

    with pytest.raises(CriproxyError, match="it exists and is not a socket"):
        listen(str(path), 0o660)

    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_no_longer_ours_stays(tmp_path: Path) -> None:
    """If somebody put another socket in its place, the end of this one does not remove that."""
    path = tmp_path / "x.sock"
    listener = listen(str(path), 0o660)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))

        listener.close()

    assert path.exists()


def test_a_directory_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """Nobody else may put a socket in the place of ours."""
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(0o777)

    with pytest.raises(CriproxyError, match="other users can replace files in it"):
        listen(str(directory / "x.sock"), 0o660)


def test_a_parent_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    """The sentence names what is in the way."""
    (tmp_path / "file").write_text("")

    with pytest.raises(CriproxyError, match=r"cannot listen on .*file"):
        listen(str(tmp_path / "file" / "x.sock"), 0o660)
