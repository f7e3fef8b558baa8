"""The type of options that name one of criproxy's files or directories."""

from pathlib import Path
from typing import Any

import click


class PathOption(click.Path):
    """A path that need not exist. Whether it is readable is checked when it is read, which gives a better error.

    Args:
        folder: it is a directory, if it exists.
        exists: it must exist: what is missing below it is no error, so that a mistyped path would go unnoticed.
    """

    def __init__(self, *, folder: bool = False, exists: bool = False) -> None:
        super().__init__(exists=exists, file_okay=not folder, readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's signature
        """Convert to a path; an empty value is an unset variable in a script, and not the working directory."""
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)
