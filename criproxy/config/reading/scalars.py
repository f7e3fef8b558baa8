"""What an unquoted word of YAML means: the few rules of YAML 1.2, without the surprises of 1.1.

In 1.1, which the YAML library follows, ``no`` is false, ``0:30`` is 30, ``010`` is 8 and ``1_0`` is 10. Here they are
texts, and what is a number to one program and another number to the next is a mistake.
"""

import re

MAX_DIGITS = 18
"""A longer number is none that anything is measured in, and takes long to read."""

_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")


def read_plain(text: str) -> str | int | float | bool | None:
    """The value of the unquoted *text*.

    Raises:
        ValueError: a number that programs read differently, or a huge one.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) <= MAX_DIGITS and _INTEGER.fullmatch(text):
        return _integer(text)
    if len(text) <= 2 * MAX_DIGITS and _FLOAT.fullmatch(text):
        if _INTEGER.fullmatch(text):
            raise ValueError(f"the number {text} is too large")
        return float(text)
    return text


def _integer(text: str) -> int:
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits.startswith("0"):
        raise ValueError(
            f"a number must not begin with 0, which some programs take for base 8: write {int(text)}, "
            f'or "{text}" in quotes if it is a text'
        )
    return int(text)
