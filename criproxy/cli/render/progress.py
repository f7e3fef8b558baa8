"""A progress bar for long operations, on standard error and only if it is a terminal."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def watched(items: Sequence[T], what: str) -> Iterable[T]:
    """Yield *items*, with a progress bar that disappears at the end."""
    return _shown(items, what) if len(items) > 1 and sys.stderr.isatty() else items


def _shown(items: Sequence[T], what: str) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=what, console=Console(stderr=True), transient=True)
