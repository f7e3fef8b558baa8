"""Types of options whose values have a unit."""

from typing import Any

import click


class Duration(click.ParamType[float]):
    """Seconds, written such as ``10m``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        """The number of seconds."""
        from criproxy.model.amounts import parse_seconds

        try:
            return parse_seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Size(click.ParamType[int]):
    """Bytes, written such as ``64Mi``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """The number of bytes."""
        from criproxy.model.amounts import parse_bytes

        try:
            return parse_bytes(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Cpu(click.ParamType[int]):
    """Milli-CPU, written such as ``8``, ``1.5`` and ``250m``."""

    name = "cpu"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """The number of thousandths of a CPU."""
        from criproxy.model.amounts import parse_milli

        try:
            return parse_milli(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
