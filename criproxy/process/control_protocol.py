"""The lines of the control socket, for its clients; without asyncio, which would delay the commands."""

import json
from collections.abc import Mapping
from typing import Any


def request_of(command: str, arguments: Mapping[str, Any]) -> bytes:
    """Return the line that sends a command."""
    return json.dumps({"command": command, "arguments": dict(arguments)}).encode() + b"\n"


def answer_of(line: bytes) -> Mapping[str, Any]:
    """Return the answer in the *line* of a daemon: an object with ``result``, or with ``error``, a text.

    Raises:
        ValueError: the line is none of a daemon; the text has the reason.
    """
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("its answer is not JSON") from None
    if isinstance(answer, dict) and ("result" in answer or isinstance(answer.get("error"), str)):
        return answer
    raise ValueError("its answer has neither a result nor an error")
