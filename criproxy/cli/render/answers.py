"""What all answers of the daemon, or of its state in its stead, have in common on a terminal."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from criproxy.cli.render import words
from criproxy.cli.render.console import NOTE, TROUBLE

Values = dict[str, Any]


def no_answer(values: Values) -> Text:
    """An answer that could not be had, of which `watching` has only the ``error``."""
    return Text(f"{values['error']}; trying again", style=TROUBLE)


def title_of(values: Values, more: str = "") -> Text:
    """Who answers, since when, and *more*."""
    if values["source"] != "daemon":
        return Text("criproxy: the daemon does not answer", style=TROUBLE)
    up = words.ago(values["started"])
    return Text(f"criproxy {values['version']}, process {values['pid']}, up {up}{more}; {values['time'][:19]}Z")


def notices_of(values: Values) -> Iterator[Text]:
    """What is wrong, or worth knowing, of the whole."""
    for notice in values["notices"]:
        if notice["wrong"]:
            yield Text(f"WRONG: {notice['text']}", style=TROUBLE)
        else:
            yield Text(f"Note: {notice['text']}", style=NOTE)
