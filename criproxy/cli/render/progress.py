"""A progress bar for what may take long, on standard error and only where somebody looks at it."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def watched(items: Sequence[T], what: str) -> Iterable[T]:
    """*items*, with a bar of those that are done; it vanishes at the end."""
    return _shown(items, what) if len(items) > 1 and sys.stderr.isatty() else items


def _shown(items: Sequence[T], what: str) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=what, console=Console(stderr=True), transient=True)
