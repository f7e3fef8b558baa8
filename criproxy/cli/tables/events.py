"""One event of ``criproxy events`` as a line of text."""

from typing import Any

from criproxy.model.text.bounded import bounded_text, printable

BAD = frozenset({"refused", "passed", "failed", "lost", "drift", "unknown", "unhealthy", "quota"})
"""Kinds of events that somebody who looks for a mistake should see first."""
MAX_CHARS = 1_000
"""Of one line."""


def line(event: dict[str, Any]) -> str:
    """One event on one line; what a terminal would act on in its texts is shown instead."""
    about = f"{bounded_text(event['container'], 200)}: " if event["container"] else ""
    said = "; ".join(event["sentences"]).removeprefix(f"{event['container']} ")
    text = bounded_text(f"{about}{said}", MAX_CHARS)
    return printable(f"{event['time']}  {event['kind']:<9}  {text}")
