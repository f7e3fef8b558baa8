"""Detects that the supposed runtime is another criproxy.

A proxy answers this method itself; a runtime does not know it. This also detects one that listens on a socket of
systemd or behind a link. A bypassed criproxy forwards the method, and is not detected.
"""

from typing import TYPE_CHECKING

from criproxy import __version__
from criproxy.errors import StatusCode
from criproxy.wire.calls import Refuse, Rule

if TYPE_CHECKING:
    from criproxy.cri.runtime import RuntimeClient

PATH = "/criproxy.v1.Criproxy/Here"
_MARK = "criproxy "

TABLE = {PATH: Rule(answer=Refuse(StatusCode.ALREADY_EXISTS, f"{_MARK}{__version__}"))}
"""The rule that every proxy of criproxy has."""


async def criproxy_behind(runtime: "RuntimeClient") -> str | None:
    """Return name and version of the criproxy behind *runtime*; empty if it is none, None if unknown.

    Raises:
        RuntimeCallError: the runtime does not answer.
    """
    code, details = await runtime.probe(PATH)
    if code is StatusCode.UNIMPLEMENTED:
        return ""
    return details if code is StatusCode.ALREADY_EXISTS and details.startswith(_MARK) else None
