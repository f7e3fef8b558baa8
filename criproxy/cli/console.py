"""The terminal, as commands print to it."""

import os
import sys

from rich.console import Console

UNLIMITED = 1 << 16
"""Columns of what is no terminal: into a pipe or file, a line is a line however long it is."""
TROUBLE, NOTE, QUIET, HEADING = "bold red", "yellow", "dim", "bold"


def console() -> Console:
    """Standard output; rich takes its width from COLUMNS where that is set, terminal or not."""
    limited = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if limited else UNLIMITED)
