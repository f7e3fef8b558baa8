"""The methods that scripts call, one for each way of treating a call, and what each makes of a message."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from criproxy.wire.calls import Call, Outcome, Proceed, Rule, Verdict
from lab.fuzz.source import BLOCK

Edit = Callable[[bytes], bytes | None]
_GZIP_MAGIC = b"\x1f\x8b"


def _grow(message: bytes) -> bytes:
    return message + BLOCK[:500]


def _shrink(message: bytes) -> bytes:
    return message[: len(message) // 2]


def _mixed(message: bytes) -> bytes | None:
    """Every kind of answer an edit may give, by the length of the message."""
    match len(message) % 4:
        case 0:
            return None
        case 1:
            raise ValueError("an edit that fails")
        case 2:
            return message + BLOCK[:20_000]
    return b""


async def _held(call: Call, message: bytes) -> Verdict:
    return Proceed()  # never called: scripts answer through the splice


def _done(call: Call, outcome: Outcome) -> None:
    """Never called: scripts read the events."""


def _each(call: Call, message: bytes) -> None:
    """Never called: scripts read the events."""


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the table that scripts use."""

    path: str
    hold: bool = False
    watch: bool = False
    each: bool = False
    edit: Edit | None = None

    @property
    def rule(self) -> Rule:
        """As the data plane wants it."""
        edit = self.edit
        return Rule(
            hold=_held if self.hold else None,
            done=_done if self.watch else None,
            each=_each if self.each else None,
            edit=(lambda call, message: edit(message)) if edit else None,
        )


METHODS = (
    Method("/f/Pass"),
    Method("/f/Hold", hold=True),
    Method("/f/HoldWatch", hold=True, watch=True),
    Method("/f/Watch", watch=True),
    Method("/f/Each", watch=True, each=True),
    Method("/f/Grow", edit=_grow),
    Method("/f/Shrink", edit=_shrink, watch=True),
    Method("/f/Mixed", edit=_mixed, watch=True),
    Method("/f/All", hold=True, watch=True, each=True, edit=_mixed),
    Method("/f/HoldGrow", hold=True, edit=_grow),
    Method("/unknown"),
)
TABLE = {method.path: method.rule for method in METHODS if method.path != "/unknown"}


def prefixed(flag: int, message: bytes) -> bytes:
    """A gRPC message as it stands in DATA."""
    return bytes((flag,)) + len(message).to_bytes(4, "big") + message


def gzipped(message: bytes) -> bytes:
    """*message* compressed, with its prefix."""
    packer = zlib.compressobj(1, wbits=31)
    return prefixed(1, packer.compress(message) + packer.flush())


def messages(payload: bytes) -> tuple[list[bytes], bytes]:
    """The whole messages at the front of *payload*, prefixes included, and what follows them."""
    found, at = [], 0
    while len(payload) - at >= 5:
        end = at + 5 + int.from_bytes(payload[at + 1 : at + 5], "big")
        if end > len(payload):
            break
        found.append(payload[at:end])
        at = end
    return found, payload[at:]


def plain(raw: bytes) -> bytes | None:
    """A message without prefix and compression; None where nobody could read it."""
    if raw[0] == 0:
        return raw[5:]
    if raw[0] != 1 or not raw[5:].startswith(_GZIP_MAGIC):
        return None
    unpacker = zlib.decompressobj(wbits=31)
    try:
        message = unpacker.decompress(raw[5:])
    except zlib.error:
        return None
    return message if unpacker.eof else None


def edited(method: Method, payload: bytes) -> bytes:
    """What the kubelet gets where the runtime has sent *payload* and then ended the stream."""
    if method.edit is None:
        return payload
    whole, rest = messages(payload)
    return b"".join(_edit_one(method.edit, raw) for raw in whole) + rest


def _edit_one(edit: Edit, raw: bytes) -> bytes:
    message = plain(raw)
    if message is None:
        return raw
    try:
        new = edit(message)
    except ValueError:
        return raw
    return raw if new is None else prefixed(0, new)
