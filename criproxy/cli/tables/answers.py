"""What all answers, of the daemon or from its state, have in common on a terminal."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from criproxy.cli.render import words
from criproxy.cli.render.console import NOTE, TROUBLE

Values = dict[str, Any]


def no_answer(values: Values) -> Text:
    """Render the ``error`` of `repeated_output` in place of an answer."""
    return Text(f"{values['error']}; trying again", style=TROUBLE)


def title_of(values: Values, more: str = "") -> Text:
    """Render the source of the answer, since when it has been running, and *more*."""
    if values["source"] != "daemon":
        return Text("criproxy: the daemon does not answer", style=TROUBLE)
    up = words.ago(values["started"])
    host = f" on {values['host']}" if values.get("host") else ""  # missing in answers of earlier versions
    return Text(f"criproxy {values['version']}{host}, process {values['pid']}, up {up}{more}; {values['time'][:19]}Z")


def notices_of(values: Values) -> Iterator[Text]:
    """Render the notices about the node."""
    for notice in values["notices"]:
        if notice["wrong"]:
            yield Text(f"WRONG: {notice['text']}", style=TROUBLE)
        else:
            yield Text(f"Note: {notice['text']}", style=NOTE)
