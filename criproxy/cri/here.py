"""How a criproxy finds out that what it takes for the runtime is another criproxy.

A proxy answers this method itself; a runtime does not know it. One that listens on a socket of systemd or is behind a
link is found in this way, too. One that is bypassed passes it on, and is not found.
"""

from typing import TYPE_CHECKING

from criproxy import __version__
from criproxy.errors import StatusCode
from criproxy.wire.calls import Call, Refuse, Rule, Verdict

if TYPE_CHECKING:
    from criproxy.cri.runtime import RuntimeClient

PATH = "/criproxy.v1.Criproxy/Here"
_MARK = "criproxy "


async def _here(call: Call, message: bytes) -> Verdict:
    return Refuse(StatusCode.ALREADY_EXISTS, f"{_MARK}{__version__}")


TABLE = {PATH: Rule(hold=_here)}
"""What every proxy of ours answers."""


async def criproxy_behind(runtime: "RuntimeClient") -> str | None:
    """Name and version of the criproxy that *runtime* leads to; empty where it is none, None where it does not say.

    Raises:
        RuntimeCallError: the runtime does not answer.
    """
    code, details = await runtime.probe(PATH)
    if code is StatusCode.UNIMPLEMENTED:
        return ""
    return details if code is StatusCode.ALREADY_EXISTS and details.startswith(_MARK) else None
