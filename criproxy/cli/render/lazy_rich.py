"""What criproxy uses of rich, imported at the first use: that takes 60 ms, and JSON output does without it."""

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.cells import cell_len
    from rich.console import Console, Group, RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = ["Console", "Group", "RenderableType", "Table", "Text", "cell_len"]

UNBROKEN = re.compile(r"\s*\S+?(?:(?<=\d),(?=\d)|(?=\s)|\Z)\s*")
"""What is never broken, in every text and cell: a word, and each part of a list of numbers, with the following comma. A
break inside a number would show other CPUs."""
_MODULES = {"Console": "console", "Group": "console", "Table": "table", "Text": "text", "cell_len": "cells"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 (a class or function of rich)
    """Return the class or function of rich with this name."""
    if name not in _MODULES:
        raise AttributeError(name)
    import rich._wrap

    rich._wrap.re_word = UNBROKEN  # noqa: SLF001 (there is no option; a test checks that rich still uses it)
    return getattr(import_module(f"rich.{_MODULES[name]}"), name)
