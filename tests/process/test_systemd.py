"""What is read from systemd's environment and said to its socket."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from criproxy.errors import UsageError
from criproxy.process.systemd import Notifier, adopt_sockets

ME = str(os.getpid())


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """A manager's datagram socket and its address as NOTIFY_SOCKET says it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"\0criproxy-test-{ME}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(name)
        sock.settimeout(5)
        yield name.replace("\0", "@"), sock


def test_messages_reach_the_manager(manager: tuple[str, socket.socket]) -> None:
    """Readiness, status, life and end are said in systemd's words, on a path and on an abstract socket."""
    address, sock = manager
    notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"})

    notifier.ready("serving")
    notifier.status("fine")
    notifier.alive()
    notifier.reloading()
    notifier.stopping()

    assert sock.recv(4096).decode().splitlines() == ["READY=1", "STATUS=serving", f"MAINPID={ME}"]
    assert (sock.recv(4096), sock.recv(4096)) == (b"STATUS=fine", b"WATCHDOG=1")
    assert sock.recv(4096).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    assert sock.recv(4096).startswith(b"STOPPING=1")


def test_a_status_is_one_line(manager: tuple[str, socket.socket]) -> None:
    """A text from outside, such as a failure in the status of a NodePolicy, kills nobody by another message."""
    address, sock = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})

    notifier.status("failed:\nWATCHDOG=trigger \udc80")
    notifier.ready("failed:\nMAINPID=1")

    assert sock.recv(4096) == rb"STATUS=failed:\nWATCHDOG=trigger \udc80"
    assert sock.recv(4096).decode().splitlines() == ["READY=1", r"STATUS=failed:\nMAINPID=1", f"MAINPID={ME}"]


def test_without_a_watchdog_nobody_hears_of_life(manager: tuple[str, socket.socket]) -> None:
    """A manager that did not ask is left alone."""
    address, sock = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})

    notifier.alive()
    notifier.status("next")

    assert sock.recv(4096) == b"STATUS=next"


def test_no_manager_is_no_error(tmp_path: Path) -> None:
    """Outside systemd, or after the manager went away, nothing happens."""
    Notifier({}).ready("serving")
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).status("fine")


@pytest.mark.parametrize("address", ["relative", "@", "tcp:1"])
def test_a_strange_address_is_refused(address: str) -> None:
    """Only what systemd documents is understood."""
    with pytest.raises(UsageError, match="NOTIFY_SOCKET"):
        Notifier({"NOTIFY_SOCKET": address})


@pytest.mark.parametrize(
    ("environ", "expected_s"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"WATCHDOG_USEC": "20000000"}, 10.0, id="half-of-it"),
        pytest.param({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": ME}, 10.0, id="ours"),
        pytest.param({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}, None, id="of-another-process"),
        pytest.param({"WATCHDOG_USEC": "0"}, None, id="off"),
        pytest.param({"WATCHDOG_USEC": "soon"}, None, id="nonsense"),
    ],
)
def test_the_watchdog_interval(environ: dict[str, str], expected_s: float | None) -> None:
    """We speak twice as often as we must, and only where it is us who must."""
    assert expected_s == Notifier(environ).watchdog_interval_s


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"LISTEN_PID": "1", "LISTEN_FDS": "1"}, id="for-another-process"),
        pytest.param({"LISTEN_PID": ME, "LISTEN_FDS": "0"}, id="none"),
        pytest.param({"LISTEN_PID": ME, "LISTEN_FDS": "many"}, id="nonsense"),
    ],
)
def test_no_sockets_for_us(environ: dict[str, str]) -> None:
    """What is not passed to this process is not touched; the variables do not live on."""
    assert (adopt_sockets(environ), environ) == ({}, {})


@pytest.mark.parametrize(
    "names",
    [
        pytest.param("kubelet:criproxy", id="unknown"),
        pytest.param("", id="unnamed"),
        pytest.param("criproxy", id="one-name-for-two"),
        pytest.param("criproxy:criproxy", id="twice"),
        pytest.param("criproxy:control:criproxy-image", id="too-many-names"),
    ],
)
def test_sockets_that_we_cannot_place_are_refused(names: str) -> None:
    """A unit with a wrong name is told which names there are."""
    environ = {"LISTEN_PID": ME, "LISTEN_FDS": "2", "LISTEN_FDNAMES": names}

    with pytest.raises(UsageError, match=r"another one of criproxy, criproxy-image, control$"):
        adopt_sockets(environ)


@pytest.fixture
def passed(tmp_path: Path) -> Iterator[int]:
    """Two listening sockets at consecutive descriptors, of which the first is returned."""
    base = 300
    for offset in range(2):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(tmp_path / f"{offset}.sock"))
            sock.listen(1)
            os.dup2(sock.fileno(), base + offset)
    yield base
    for offset in range(2):
        os.close(base + offset)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("criproxy:criproxy-image", ["criproxy", "criproxy-image"]),
        ("control:criproxy", ["control", "criproxy"]),
        ("criproxy.socket:criproxy-image.socket", ["criproxy", "criproxy-image"]),
    ],
)
def test_sockets_are_adopted_by_name(passed: int, names: str, expected: list[str]) -> None:
    """Each is the socket that its place says, ready for the event loop and closed in children."""
    environ = {"LISTEN_PID": ME, "LISTEN_FDS": "2", "LISTEN_FDNAMES": names, "OTHER": "stays"}

    adopted = adopt_sockets(environ, passed)

    assert expected == list(adopted)
    assert [Path(sock.getsockname()).name for sock in adopted.values()] == ["0.sock", "1.sock"]
    assert not any(sock.get_inheritable() or sock.getblocking() for sock in adopted.values())
    assert environ == {"OTHER": "stays"}
    for sock in adopted.values():
        sock.detach()  # the fixture closes the descriptors


def test_one_socket_without_a_name_is_ours(passed: int) -> None:
    """Older systemd passes no names; the one socket is the kubelet's."""
    adopted = adopt_sockets({"LISTEN_PID": ME, "LISTEN_FDS": "1"}, passed)

    assert list(adopted) == ["criproxy"]
    adopted["criproxy"].detach()


def test_what_is_no_listening_unix_socket_is_refused(tmp_path: Path) -> None:
    """A file, a datagram socket or one that does not listen says so at the start, not at the first call."""
    environ = {"LISTEN_PID": ME, "LISTEN_FDS": "1"}
    with (tmp_path / "file").open("w") as file, pytest.raises(UsageError, match=r"\(criproxy\) is not a socket"):
        adopt_sockets(dict(environ), file.fileno())

    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        fd = socket.socket(socket.AF_UNIX, kind).detach()
        with pytest.raises(UsageError, match="must be a ListenStream="):
            adopt_sockets(dict(environ), fd)
