"""The type of options that name a file or folder of ours."""

from pathlib import Path
from typing import Any

import click


class Place(click.Path):
    """A path that need not be there. Whether it may be read is asked of who reads it, and who may not is told why."""

    def __init__(self, *, folder: bool = False) -> None:
        super().__init__(file_okay=not folder, readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's signature
        """A path; empty is a script's variable that is not set, and not the working directory."""
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)
