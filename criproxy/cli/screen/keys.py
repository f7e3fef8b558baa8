"""Bytes from a terminal → names of keys. Pure."""

import re

_NAMES = {
    "\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x08": "backspace",
    "\x03": "ctrl-c", "\x04": "ctrl-d", "\x0c": "ctrl-l", "\x15": "ctrl-u",
}  # fmt: skip
_LETTERS = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end", "Z": "backtab"}
_NUMBERS = {"1": "home", "4": "end", "5": "pageup", "6": "pagedown", "7": "home", "8": "end"}
_SEQUENCE = re.compile(r"\x1b(?:O(?P<application>[A-Za-z])|\[(?P<arguments>[0-9;<?]*)(?P<final>[@-~]))")
_BEGUN = re.compile(r"\x1b(?:O|\[[0-9;<?]*)?\Z")


def keys_in(text: str) -> list[str]:
    """The keys in *text*; a sequence that means no key that is known, such as that of a mouse, is left out."""
    found, at = list[str](), 0
    while at < len(text):
        if sequence := _SEQUENCE.match(text, at):
            at = sequence.end()
            found += [key] if (key := _named(sequence)) else []
            continue
        character, at = text[at], at + 1
        if character == "\x1b":
            found.append("escape")
        elif character in _NAMES:
            found.append(_NAMES[character])
        elif character.isprintable():
            found.append(character)
    return found


def is_begun(text: str) -> bool:
    """Whether *text* ends within a sequence, or with the Escape key."""
    return _BEGUN.search(text) is not None


def _named(sequence: re.Match[str]) -> str:
    if letter := sequence["application"]:
        return _LETTERS.get(letter, "")
    if sequence["final"] == "~":
        return _NUMBERS.get(sequence["arguments"].partition(";")[0], "")
    return _LETTERS.get(sequence["final"], "")
