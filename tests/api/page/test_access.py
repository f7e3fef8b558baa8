"""Who may see the page."""

import asyncio
import os
from pathlib import Path, PosixPath

import pytest
from aiohttp.test_utils import make_mocked_request

from criproxy.api.page.access import Access, cookie_name, cookie_of
from criproxy.process.http import token_file
from criproxy.process.http.address import Address, is_loopback
from criproxy.process.http.token_file import read_token
from tests.gates import Gate
from tests.node.world import RecordingLog

TOKEN = "0123456789abcdef"  # noqa: S105 (of these tests)
OPEN, HERE, SOCKET = Address("0.0.0.0", 9820), Address("localhost", 9820), Address(path="/run/page.sock")


def access(address: Address | None, file: Path | None = None) -> Access:
    """As the daemon makes it."""
    return Access(address, file, RecordingLog())


async def allows(door: Access, **headers: str) -> bool:
    """Whether a request with these headers gets in."""
    return await door.allows(make_mocked_request("GET", "/", headers=headers))


@pytest.mark.parametrize(
    ("address", "name", "allowed"),
    [
        pytest.param(HERE, "localhost:9820", True, id="loopback"),
        pytest.param(HERE, "127.0.0.1:9820", True, id="loopback-address"),
        pytest.param(HERE, "[::1]:9820", True, id="loopback-ipv6"),
        pytest.param(HERE, "rebound.example:9820", False, id="name-of-a-web-site"),
        pytest.param(HERE, "", False, id="no-name"),
        pytest.param(SOCKET, "any.name", True, id="unix-socket"),
        pytest.param(OPEN, "127.0.0.1:9820", False, id="other-address"),
        pytest.param(None, "localhost", False, id="unknown-address"),
    ],
)
async def test_without_a_token(address: Address | None, name: str, allowed: bool) -> None:
    """A Unix socket and loopback are open, except for web sites whose name leads there; nothing else is."""
    assert await allows(access(address), Host=name) is allowed


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        pytest.param({"Authorization": f"Bearer {TOKEN}"}, True, id="bearer"),
        pytest.param({"Authorization": f"bearer  {TOKEN} "}, True, id="bearer-otherwise-written"),
        pytest.param({"Cookie": f"{cookie_name(TOKEN)}={cookie_of(TOKEN)}"}, True, id="cookie"),
        pytest.param({"Cookie": f"{cookie_name(TOKEN)}={TOKEN}"}, False, id="token-as-cookie"),
        pytest.param({"Authorization": f"Bearer {TOKEN}x"}, False, id="wrong"),
        pytest.param({"Authorization": "Bearer "}, False, id="empty"),
        pytest.param({"Authorization": "Bearer \u00fc\u00fc"}, False, id="not-ascii"),
        pytest.param({"Authorization": f"Basic {TOKEN}"}, False, id="basic"),
        pytest.param({}, False, id="nothing"),
    ],
)
@pytest.mark.parametrize("address", [OPEN, HERE, SOCKET], ids=["other-address", "loopback", "unix-socket"])
async def test_with_a_token(tmp_path: Path, address: Address, header: dict[str, str], allowed: bool) -> None:
    """If there is a token file, everybody needs the token, wherever the server listens."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")

    assert await allows(access(address, file), Host="localhost", **header) is allowed


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(None, "there is no such file or directory", id="missing"),
        pytest.param(b"", "at least 16 characters", id="empty"),
        pytest.param(b"short\n", "at least 16 characters", id="short"),
        pytest.param(b"\xff" * 20, "has the byte 0xFF: a token has only printable ASCII characters", id="binary"),
        pytest.param(b"\x00" * 20, "has the byte 0x00", id="zeros"),
        pytest.param(f"{TOKEN}\r\n{TOKEN}\r\n".encode(), "has 2 lines: a token is one line", id="two-lines"),
        pytest.param(f"\ufeff{TOKEN}\r\n".encode(), "begins with a byte order mark", id="byte-order-mark"),
        pytest.param(b"x" * 5000, "is 4.88 KiB, larger than the maximum of 4 KiB", id="large"),
    ],
)
async def test_a_file_without_a_usable_token(tmp_path: Path, content: bytes | None, said: str) -> None:
    """Nobody gets in, and the reason is logged once."""
    file, log = tmp_path / "token", RecordingLog()
    if content is not None:
        file.write_bytes(content)
    door = Access(OPEN, file, log)

    for given in ("", "Bearer ", f"Bearer {TOKEN}"):
        assert not await allows(door, Authorization=given)
    ((_, keys),) = log.lines
    assert said in str(keys["reason"])
    assert door.problem == keys["reason"]


@pytest.mark.parametrize(
    ("mode", "owner", "said"),
    [
        pytest.param(0o666, 0, "can be written by every user (mode 0666): chmod go-w", id="every-user"),
        pytest.param(0o620, 0, "can be written by its group (mode 0620): chmod go-w", id="group"),
        pytest.param(0o600, 4321, "belongs to user 4321, not to root: chown root", id="owner"),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_a_file_that_others_can_write(tmp_path: Path, mode: int, owner: int, said: str) -> None:
    """Who writes it lets himself in: it has no token."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(mode)
    os.chown(file, owner, -1)
    door = access(OPEN, file)

    assert not await allows(door, Authorization=f"Bearer {TOKEN}")
    assert said in door.problem


async def test_a_file_that_can_be_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to ask for the page: it is read again and again, and the problem goes away."""
    monkeypatch.setattr(token_file, "FRESH_S", 0.001)
    file = tmp_path / "token"
    door = access(OPEN, file)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(door.watch())
        while not door.problem:  # noqa: ASYNC110 (a thread's work)
            await asyncio.sleep(0)
        file.write_text(TOKEN)
        while door.problem:  # noqa: ASYNC110 (a thread's work)
            await asyncio.sleep(0)
        watch.cancel()

    assert await allows(door, Authorization=f"Bearer {TOKEN}")


async def test_a_browser_gets_a_cookie_for_the_token(tmp_path: Path) -> None:
    """The cookie lets it in and is not the token; another token gets none."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    door = access(OPEN, file)

    headers = await door.cookie_for(f" {TOKEN}\n")
    assert headers is not None
    cookie = headers["Set-Cookie"]
    assert TOKEN not in cookie
    assert cookie.endswith("HttpOnly; SameSite=Lax")
    assert await allows(door, Cookie=cookie.partition(";")[0])
    assert await door.cookie_for("another one here") is None


async def test_a_new_token_is_read(tmp_path: Path) -> None:
    """A token that is replaced lets nobody in any more."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    door = access(OPEN, file)
    assert await allows(door, Authorization=f"Bearer {TOKEN}")

    file.write_text("f" * 16)
    door._read_s = float("-inf")  # as after some seconds

    assert not await allows(door, Authorization=f"Bearer {TOKEN}")
    assert await allows(door, Authorization=f"Bearer {'f' * 16}")


async def test_a_file_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds up nobody and takes one thread, whoever asks; as soon as it can be read, its token counts."""
    monkeypatch.setattr(token_file, "PATIENCE_S", 0.01)
    (tmp_path / "token").write_text(TOKEN)
    file, opened, goes_on = hanging(tmp_path / "token")
    door = access(OPEN, file)
    refused = [await allows(door, Authorization=f"Bearer {TOKEN}")]
    async with asyncio.timeout(60):
        while not opened:  # noqa: ASYNC110 (a thread's work, which may begin later than the first answer)
            await asyncio.sleep(0.001)

    refused += [await allows(door, Authorization=f"Bearer {TOKEN}") for _ in range(4)]
    threads, problem = len(opened), door.problem
    goes_on.set()
    while not await allows(door, Authorization=f"Bearer {TOKEN}"):
        pass

    assert refused == [False] * 5
    assert threads == 1
    assert "cannot be read: no answer within" in problem
    assert not door.problem


def hanging(path: Path) -> tuple[Path, list[str], Gate]:
    """A file on a disk that does not answer until the gate is open, and who has opened it."""
    opened, goes_on = list[str](), Gate()

    class Hanging(PosixPath):
        def __fspath__(self) -> str:
            """What `open` asks for."""
            opened.append(str(self))
            goes_on.wait()
            return str(self)

    return Hanging(path), opened, goes_on


async def test_two_nodes_behind_tunnels(tmp_path: Path) -> None:
    """Their cookies lie beside each other, although both are of this host: opening one closes no other."""
    (tmp_path / "one").write_text(TOKEN)
    (tmp_path / "other").write_text(TOKEN[::-1])
    doors = [access(HERE, tmp_path / name) for name in ("one", "other")]
    given = [await door.cookie_for(token) for door, token in zip(doors, (TOKEN, TOKEN[::-1]), strict=True)]

    jar = dict(each["Set-Cookie"].partition(";")[0].split("=") for each in given if each)
    cookies = "; ".join(f"{name}={value}" for name, value in jar.items())

    assert [await allows(door, Cookie=cookies) for door in doors] == [True, True]


def test_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    """A device, or a named pipe that nobody writes, is no regular file, and has no token."""
    os.mkfifo(tmp_path / "pipe")

    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        assert read_token(path) == ("", f"{path}: is not a regular file")


def test_names_of_this_machine() -> None:
    """Loopback addresses, and the one name that browsers never look up; everything else is another's."""
    own = ["127.0.0.1", "127.8.9.1:80", "localhost", "[::1]", "[::1]:9820"]
    others = ["", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example:80", "[::2]:80"]

    assert [host for host in (*own, *others) if is_loopback(host)] == own
