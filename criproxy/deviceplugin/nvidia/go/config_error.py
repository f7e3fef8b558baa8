"""Errors about NVIDIA's file, flags or variables: NVIDIA's message first, then our advice."""

from typing import Literal

from criproxy.errors import ConfigError

Stage = Literal["cli", "parse", "validate"]
"""The stage that failed: reading flags and variables, reading the file, or validating the values together."""
MistakeClass = Literal["value", "type", "syntax", "file", "cli"]

MAX_QUOTED = 200
"""Limit for characters that a sentence quotes from a file."""


class PluginConfigError(ConfigError):
    """A configuration that NVIDIA's plugin would reject, too."""

    def __init__(
        self,
        text: str,
        *,
        mistake_class: MistakeClass = "value",
        stage: Stage = "parse",
        line: int = 0,
        where: str = "",
        advice: str = "",
    ) -> None:
        """Create the error.

        Args:
            text: NVIDIA's message, if it has one.
            mistake_class: The kind of mistake.
            stage: The stage that failed.
            line: Line of the file, from 1; 0 for none.
            where: Key of the value in the file.
            advice: What would be right.
        """
        self.text = text
        self.mistake_class = mistake_class
        self.stage = stage
        self.line = line
        self.where = where
        self.advice = advice
        place = ": ".join(part for part in (f"line {line}" if line else "", where) if part)
        sentence = "; ".join(part for part in (text, advice) if part)
        super().__init__(f"{place}: {sentence}" if place else sentence)


class WrongTypeError(PluginConfigError):
    """A value of another type than Go's field: the decoder continues, and reports it if there is no other mistake."""


def quoted(text: str) -> str:
    """Return *text* as part of a sentence: printable, of bounded length, in quotes."""
    printable = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[: MAX_QUOTED + 1])
    return f"'{printable}'" if len(printable) <= MAX_QUOTED else f"'{printable[:MAX_QUOTED]}…'"
