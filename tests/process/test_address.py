"""The address of the HTTP API."""

import pytest

from criproxy.errors import UsageError
from criproxy.process.address import Address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9100", Address("127.0.0.1", 9100)),
        ("node-1:80", Address("node-1", 80)),
        (":9100", Address("localhost", 9100)),
        ("[::1]:9100", Address("::1", 9100)),
        ("0.0.0.0:65535", Address("0.0.0.0", 65535)),
        ("unix:///run/criproxy/http.sock", Address(path="/run/criproxy/http.sock")),
        ("/run/criproxy/http.sock", Address(path="/run/criproxy/http.sock")),
    ],
)
def test_an_address(text: str, expected: Address) -> None:
    """Without a host only this machine can connect."""
    assert expected == Address.parse(text)


@pytest.mark.parametrize(
    "text", ["", "9100", "host", "host:", "host:http", ":0", ":65536", ":-1", "::1:9100", "http://host:80", "host:²"]
)
def test_what_is_no_address(text: str) -> None:
    """The error shows the forms that are understood."""
    with pytest.raises(UsageError, match=r"--http: .* use HOST:PORT, :PORT .*, \[IPV6\]:PORT or unix:///PATH"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (Address("localhost", 1), "http://localhost:1"),
        (Address("::1", 1), "http://[::1]:1"),
        (Address(path="/x"), "unix:///x"),
    ],
)
def test_an_address_is_shown_as_a_url(address: Address, expected: str) -> None:
    """A reader of the log can paste it."""
    assert expected == str(address)
