"""The output of the demo: what each part does, and the results of its checks."""

from dataclasses import dataclass
from io import StringIO

from rich.console import Console, RenderableType

from criproxy.cli.render.console import console


@dataclass(slots=True)
class DemoOutput:
    """Prints to *console*, and counts failed checks."""

    console: Console
    failures: int = 0

    def title(self, text: str) -> None:
        """Print the title of a part."""
        self.console.print(f"\n[bold]{text}[/bold]", highlight=False)

    def line(self, text: str) -> None:
        """Print a line without markup."""
        self.console.print(f"  {text}".rstrip(), markup=False, highlight=False, soft_wrap=True)

    def show(self, what: RenderableType) -> None:
        """Print a table without colors, as commands print to a pipe."""
        text = StringIO()
        console(text, self.console.width - 2).print(what)
        for line in text.getvalue().splitlines():
            self.line(line)

    def check(self, what: str, right: bool) -> None:
        """Print whether *what* is true, and count it if it is not."""
        self.failures += not right
        self.console.print(
            f"  [green]✓[/green] {what}" if right else f"  [red]✗ not true: {what}[/red]", highlight=False
        )
