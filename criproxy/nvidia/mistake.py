"""What is wrong with NVIDIA's file, flags or variables, in NVIDIA's words first and then in ours."""

from typing import Literal

from criproxy.errors import ConfigError

Stage = Literal["cli", "parse", "validate"]
"""Whether flags and variables could not be read, the file could not, or their values do not fit together."""
MistakeClass = Literal["value", "type", "syntax", "file", "cli"]

MAX_QUOTED = 200
"""Characters quoted from a file in one sentence."""


class PluginConfigError(ConfigError):
    """A configuration that NVIDIA's plugin would refuse, too."""

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
        """Say *text*, which is NVIDIA's message where there is one; *line* counts from 1, and 0 is no line.

        *where* is the key of the value in the file, *advice* what would be right.
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
    """A value of another type than Go's field: the decoder goes on, and tells it if nothing else is wrong."""


def quoted(text: str) -> str:
    """The *text* as part of a sentence: printable, of bounded length, in quotes."""
    printable = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[: MAX_QUOTED + 1])
    return f"'{printable}'" if len(printable) <= MAX_QUOTED else f"'{printable[:MAX_QUOTED]}…'"
