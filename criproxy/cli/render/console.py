"""The terminal, as commands print to it."""

import os
import re
import sys
from typing import IO

import click
import rich._wrap
from rich.console import Console, RenderableType

UNLIMITED = 1 << 16
"""Columns of what is no terminal: into a pipe or file, a line is a line however long it is."""
TROUBLE, NOTE, QUIET, HEADING = "bold red", "yellow", "dim", "bold"

UNBROKEN = re.compile(r"\s*\S+?(?:(?<=\d),(?=\d)|(?=\s)|\Z)\s*")
"""What stays in one line, in every text and cell: a word, and each part of a list of numbers, with a comma behind it. A
break inside of a number would show CPUs that are not meant."""
rich._wrap.re_word = UNBROKEN  # noqa: SLF001 (it has no option for it; a test sees whether it still goes by this)


def console(file: IO[str] | None = None, width: int | None = None) -> Console:
    """Standard output, on which texts are texts: what is in brackets is no markup, and what is in colons no emoji.

    Rich takes the width from COLUMNS where that is set, terminal or not.

    Args:
        file: instead of standard output.
        width: instead of the usual one.
    """
    limited = sys.stdout.isatty() or "COLUMNS" in os.environ
    columns = width or (None if limited else UNLIMITED)
    return Console(file=file, highlight=False, markup=False, emoji=False, width=columns)


def show(renderable: RenderableType) -> None:
    """Print to standard output; what is no terminal gets no blanks at the ends of lines."""
    screen = console()
    if screen.is_terminal:
        screen.print(renderable)
        return
    with screen.capture() as captured:
        screen.print(renderable)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
