"""The pure parts of the data plane, with whatever bytes a peer may send."""

import gzip
import zlib
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import WireError
from criproxy.wire import frames
from criproxy.wire.message import MessageError, decompress

Parse = Callable[[int, bytes], object]
PARSERS: dict[str, Parse] = {
    "unpad": frames.unpad,
    "header_fragment": frames.header_fragment,
    "parse_settings": lambda _, payload: frames.parse_settings(payload),
    "parse_u31": lambda _, payload: frames.parse_u31(payload, "GOAWAY"),
}


@pytest.mark.parametrize("parse", PARSERS.values(), ids=PARSERS)
@given(flags=st.integers(0, 255), payload=st.binary(max_size=60))
def test_any_payload_is_taken_apart_or_refused(parse: Parse, flags: int, payload: bytes) -> None:
    """Nothing but a WireError says why not."""
    with suppress(WireError):
        parse(flags, payload)


@given(plain=st.binary(max_size=300), cut=st.integers(0, 400), more=st.binary(max_size=30), twice=st.booleans())
def test_what_is_unpacked_is_what_gzip_makes_of_it(plain: bytes, cut: int, more: bytes, twice: bool) -> None:
    """Broken, cut or longer than one message: refused, or the same."""
    packed = gzip.compress(plain)
    broken = packed[:cut] + more + packed * twice
    try:
        unpacked = decompress(1, broken, "gzip")
    except MessageError:
        return
    assert unpacked == zlib.decompress(broken, wbits=31)
