"""How the acts of `criproxy demo` tell what they do, and what they have checked."""

from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@dataclass(slots=True)
class Teller:
    """Prints on *console*, and counts what was not as it should be."""

    console: "Console"
    failures: int = 0

    def title(self, text: str) -> None:
        """Begin an act."""
        self.console.print(f"\n[bold]{text}[/bold]", highlight=False)

    def line(self, text: str) -> None:
        """Print a line as it is."""
        self.console.print(f"  {text}".rstrip(), markup=False, highlight=False, soft_wrap=True)

    def show(self, what: "RenderableType") -> None:
        """Print a table, in plain letters as a command prints it into a pipe."""
        from criproxy.cli.render.console import console

        text = StringIO()
        console(text, self.console.width - 2).print(what)
        for line in text.getvalue().splitlines():
            self.line(line)

    def check(self, what: str, right: bool) -> None:
        """Say that *what* is true, or that it is not."""
        self.failures += not right
        self.console.print(
            f"  [green]✓[/green] {what}" if right else f"  [red]✗ not true: {what}[/red]", highlight=False
        )
