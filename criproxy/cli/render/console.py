"""The terminal to which commands print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import IO, Any, TypeVar

import click

from criproxy.cli.render import lazy_rich as rich
from criproxy.model.text.bounded import printable

T = TypeVar("T")
UNLIMITED = 1 << 16
"""The width if the output is not a terminal: in a pipe or file, lines may have any length."""
TROUBLE, NOTE, QUIET, HEADING = "bold red", "yellow", "dim", "bold"


def console(file: IO[str] | None = None, width: int | None = None) -> rich.Console:
    """Return standard output as a console without markup in brackets and emoji in colons.

    Rich takes the width from COLUMNS if it is set, terminal or not.

    Args:
        file: a file in place of standard output.
        width: a width in place of the usual one.
    """
    limited = sys.stdout.isatty() or "COLUMNS" in os.environ
    columns = width or (None if limited else UNLIMITED)
    return rich.Console(file=file, highlight=False, markup=False, emoji=False, width=columns)


def show(renderable: rich.RenderableType) -> None:
    """Print to standard output, without blanks at the ends of lines if it is not a terminal."""
    screen = console()
    if screen.is_terminal:
        screen.print(renderable)
        return
    with screen.capture() as captured:
        screen.print(renderable)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_answer(values: dict[str, Any], output: str, render: Callable[[dict[str, Any]], rich.RenderableType]) -> None:
    """Print an answer of the daemon as *output* says: ``json``, or rendered."""
    if output == "json":
        click.echo(json.dumps(values))
    else:
        show(render(values))


def table(*names: str, right: Collection[str] = ()) -> rich.Table:
    """Return a table without lines; the cells of columns in *right* end below each other."""
    found = rich.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=HEADING)
    for name in names:
        found.add_column(name, overflow="fold", justify="right" if name in right else "left")
    return found


def indented(lines: Iterable[str] = (), style: str = "", *, columns: int = 1) -> rich.Table:
    """Return a table without headings, whose first column only indents the others by two blanks."""
    found = rich.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    found.add_column(width=0)
    for _ in range(columns):
        found.add_column(overflow="fold")
    for line in lines:
        found.add_row("", line, style=style)
    return found


def section(title: str, lines: Sequence[str], style: str = HEADING) -> list[rich.RenderableType]:
    """Return a title with its lines below it; nothing without lines."""
    return [rich.Text(), rich.Text(title, style=style), indented(lines)] if lines else []


def print_lines(text: str, *, err: bool = False) -> None:
    """Print the lines of *text*, with control characters made visible."""
    click.echo("\n".join(printable(line) for line in text.split("\n")), err=err)


def watched(items: Sequence[T], what: str) -> Iterable[T]:
    """Yield *items*, with a progress bar that disappears at the end."""
    return _shown(items, what) if len(items) > 1 and sys.stderr.isatty() else items


def _shown(items: Sequence[T], what: str) -> Iterator[T]:
    from rich.progress import track

    yield from track(items, description=what, console=rich.Console(stderr=True), transient=True)
