"""The terminal, as commands print to it."""

import os
import re
import sys

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


def console() -> Console:
    """Standard output; rich takes its width from COLUMNS where that is set, terminal or not."""
    limited = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if limited else UNLIMITED)


def show(renderable: RenderableType) -> None:
    """Print to standard output; what is no terminal gets no blanks at the ends of lines."""
    screen = console()
    if screen.is_terminal:
        screen.print(renderable)
        return
    with screen.capture() as captured:
        screen.print(renderable)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
