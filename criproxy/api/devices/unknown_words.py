"""Words in a request of a newer device plugin that this daemon does not know yet."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from criproxy.process.logger import Log


def with_known_action(arguments: Mapping[str, Any], weakest: Enum, log: Log) -> Mapping[str, Any]:
    """Return the *arguments* of a report with an action that this daemon knows.

    A refusal would lose the report, and no container may be stopped for a word that nobody understands. So an unknown
    action becomes the *weakest* one of its enumeration, and the log says so. What is no text stays as it is: that is a
    mistake, and not a newer version.
    """
    asked = arguments.get("action")
    if not isinstance(asked, str) or asked in {each.value for each in type(weakest)}:
        return arguments
    log.warning(
        "a newer device plugin asks for an action that this daemon does not know", action=asked, instead=weakest.value
    )
    return {**arguments, "action": weakest.value}
