"""What a rig has measured, beside the most that it may be."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

_DIGITS = {"bytes": 0, "µs": 0, "ms": 2, "s": 3, "kB": 1, "MiB": 1, "%": 3, "/s": 1, "": 0}


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured, beside the most that it may be."""

    what: str
    """Such as a call, and how many containers are there."""
    way: str
    """Through which way, or under which policy."""
    name: str
    value: float
    unit: str
    limit: float | None = None
    """In the same unit; None: there is no bar."""

    @property
    def ok(self) -> bool:
        """Whether the bar is kept."""
        return self.limit is None or self.value <= self.limit


def table(title: str, figures: Iterable[Figure]) -> Table:
    """A row for each thing and way, a column for each kind of figure, beside its bar."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    names: dict[str, None] = {}
    for each in figures:
        digits = _DIGITS[each.unit]
        text = f"{each.value:.{digits}f} {each.unit}".rstrip()
        if each.limit is not None:
            text = f"[{'green' if each.ok else 'bold red'}]{text} ≤ {each.limit:.{digits}f}[/]"
        rows.setdefault((each.what, each.way), {})[each.name] = text
        names[each.name] = None
    found = Table("what", "way", title=title)
    for name in names:
        found.add_column(name, justify="right", no_wrap=True)
    for key, cells in rows.items():
        found.add_row(*key, *(cells.get(name, "") for name in names))
    return found


def judge(title: str, figures: Collection[Figure]) -> int:
    """Print *figures*; the exit status, which is 1 where one is above its limit."""
    console = Console(width=max(Console().width, 132))
    console.print(table(title, figures))
    return int(not all(figure.ok for figure in figures))
