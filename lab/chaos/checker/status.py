"""What ``criproxy status --check`` says, asked for on the control socket without its code, and where it is mistaken."""

import json
import socket
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from lab.chaos.checker.rest import Wrong
from lab.chaos.checker.runtime import Unavailable

_TIMEOUT_S = 5.0
_REFUSED = "its resize has been refused"
_QUESTION = json.dumps({"command": "status", "arguments": {"check": True}}).encode() + b"\n"


def ask(control: Path) -> list[str]:
    """The sentences that it would print, what is under way included; Unavailable where it does not answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(control))
            connection.sendall(_QUESTION)
            with connection.makefile("rb") as answers:
                answer = json.loads(answers.readline())["result"]
    except (OSError, ValueError, KeyError) as error:
        raise Unavailable(f"status --check does not answer: {error!r}") from error
    return [*answer["problems"], *answer["under_way"]]


def disagreements(
    found: Sequence[Wrong], said: Sequence[str], resized: AbstractSet[str] = frozenset()
) -> Iterator[str]:
    """Where --check and what was *found* differ, a sentence each.

    Of those *resized* (POD/NAME) the driver has heard no success: that such a resize is refused is no false alarm.
    """
    for wrong in found:
        if wrong.titles and not any(title in sentence for title in wrong.titles for sentence in said):
            yield f"--check is silent: {wrong.text}"
    if not found:
        alarms = (one for one in said if not (_REFUSED in one and any(f"/{title} " in one for title in resized)))
        yield from (f"--check complains, and nothing is wrong: {sentence}" for sentence in alarms)
