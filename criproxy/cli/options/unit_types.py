"""The types of options with values that have a unit."""

from typing import Any

import click


class WholeNumber(click.IntRange):
    """A whole number between limits."""

    name = "whole number"


class Duration(click.ParamType[float]):
    """A number of seconds, written like ``10m``."""

    name = "duration"

    def __init__(self, examples: str = "") -> None:
        self.examples = (examples,) if examples else ()
        """For the message about a wrong value, if not all durations are allowed."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        """Convert to seconds."""
        from criproxy.model.text.amounts import parse_seconds

        try:
            return parse_seconds(str(value), *self.examples)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Size(click.ParamType[int]):
    """A number of bytes, written like ``64Mi``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """Convert to bytes."""
        from criproxy.model.text.amounts import parse_bytes

        try:
            return parse_bytes(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Cpu(click.ParamType[int]):
    """Milli-CPU, written such as ``8``, ``1.5`` and ``250m``."""

    name = "cpu"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """The number of thousandths of a CPU."""
        from criproxy.model.text.amounts import parse_milli

        try:
            return parse_milli(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
