"""The terminal, as commands print to it."""

import sys

from rich.console import Console

UNLIMITED = 1 << 16
"""Columns of what is no terminal: into a pipe or file, a line is a line however long it is."""
TROUBLE, NOTE, QUIET, HEADING = "bold red", "yellow", "dim", "bold"


def console() -> Console:
    """Standard output."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else UNLIMITED)
