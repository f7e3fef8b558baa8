"""Names of sockets, and who may take one."""

import os
import socket
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.server.sockets import (
    MAX_PATH_BYTES,
    Server,
    SocketError,
    claim,
    hidden_path,
    identity,
    is_alive,
    release,
    remove_dead,
    socket_name,
)

KUBELET = Path("/var/lib/kubelet/device-plugins")


def listening(path: Path) -> socket.socket:
    """A socket that somebody listens on."""
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        pytest.param("nvidia.com/gpu", "criproxy-nvidia.com_gpu.sock", id="plain"),
        pytest.param("nvidia.com/mig-1g.5gb", "criproxy-nvidia.com_mig-1g.5gb.sock", id="MIG"),
        pytest.param("a.b/c/d", "criproxy-a.b_c_d-7b2c1ae04b0c.sock", id="a second slash is replaced"),
    ],
)
def test_a_name(resource: str, name: str) -> None:
    """Says the resource; where it cannot, a digest makes it unique."""
    found = socket_name(resource, KUBELET)

    assert found.rpartition("-")[0] == name.rpartition("-")[0]
    assert (found == name) == (resource.count("/") == 1)


@given(st.lists(st.text(max_size=200), min_size=2, max_size=2, unique=True), st.integers(0, 60))
def test_names_differ_and_fit(resources: list[str], extra: int) -> None:
    """Two resources never share a name, each is one name in its folder, and its path is short enough."""
    folder = KUBELET / ("x" * extra) if extra else KUBELET
    try:
        found = [socket_name(each.encode(errors="replace").decode(), folder) for each in resources]
    except SocketError:
        assert extra > 30
        return

    assert found[0] != found[1]
    assert all("/" not in name and len(str(folder / name)) <= MAX_PATH_BYTES for name in found)


def test_a_dead_socket_is_replaced(folder: Path) -> None:
    """Whoever left it does not come back for it; the one that took its place is alive."""
    path = folder / "a.sock"
    listening(path).close()
    hidden = hidden_path(folder)
    with listening(hidden):
        claimed = claim(hidden, path)

        assert is_alive(path)
        assert identity(path) == claimed
        assert not hidden.exists()
        release(path, claimed)
    assert not path.exists()


def test_a_live_socket_is_not_taken(folder: Path) -> None:
    """It stays as it is."""
    path, hidden = folder / "a.sock", hidden_path(folder)
    with listening(path), listening(hidden):
        before = identity(path)
        with pytest.raises(SocketError, match="another process is listening on it"):
            claim(hidden, path)

        assert identity(path) == before


def test_a_socket_of_somebody_else_is_not_removed(folder: Path) -> None:
    """Another process has made one of the same name meanwhile."""
    path, hidden = folder / "a.sock", hidden_path(folder)
    with listening(hidden):
        claimed = claim(hidden, path)
        path.unlink()
        with listening(path):
            release(path, claimed)
            assert path.exists()


async def test_only_the_owner_may_connect(folder: Path) -> None:
    """The mode of a server's socket is 0600 whatever the umask, which stays as it was."""
    before = os.umask(0)
    try:
        server = Server(folder / "a.sock", [])
        await server.start()
        assert stat.S_IMODE((folder / "a.sock").stat().st_mode) == 0o600
        await server.stop()
    finally:
        assert os.umask(before) == 0


def test_no_socket_is_alive(folder: Path) -> None:
    """Nor is a file, or nothing at all."""
    (folder / "file").write_text("")
    listening(folder / "dead").close()

    assert [is_alive(folder / name) for name in ("file", "dead", "missing")] == [False] * 3
    assert identity(folder / "file") is None


def test_former_sockets_are_removed(folder: Path) -> None:
    """Those of a resource that is no longer offered; not what others have there, and not one that listens."""
    listening(folder / "criproxy-former.sock").close()
    listening(folder / "other.sock").close()
    (folder / "criproxy-file.sock").touch()
    (folder / "criproxy-link.sock").symlink_to("other.sock")
    alive = listening(folder / "criproxy-alive.sock")

    assert remove_dead(folder) == ["criproxy-former.sock"]
    assert remove_dead(folder / "missing") == []
    left = {each.name for each in folder.iterdir()}
    assert left == {"other.sock", "criproxy-file.sock", "criproxy-link.sock", "criproxy-alive.sock"}
    alive.close()
