"""Detects what the supposed runtime is: another criproxy, or which programs its handlers run.

A proxy answers the method of `PATH` itself; a runtime does not know it. This also detects one that listens on a socket
of systemd or behind a link. A bypassed criproxy forwards the method, and is not detected.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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


def programs_of(info: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the programs that containerd's runtime handlers run; the default handler is ''.

    Args:
        info: that of a verbose answer to Status; other runtimes do not name programs.
    """
    try:
        config = json.loads(info.get("config", "{}"))["containerd"]
        programs = {name: _program(name, found) for name, found in config["runtimes"].items()}
        return {"": programs[config["defaultRuntimeName"]], **programs}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _program(name: str, runtime: Mapping[str, Any]) -> str:
    """Return the name of the program of a handler; without a path, that of the handler."""
    path = (runtime.get("options") or {}).get("BinaryName") or runtime.get("runtimeEngine") or name
    return str(path).rpartition("/")[2]
