"""The story of a container as text, on terminals and in files."""

from io import StringIO

from rich.console import Console

from criproxy.cli.queries.explain import render
from criproxy.cli.render.console import UNLIMITED


def test_into_a_file_no_line_is_padded() -> None:
    """What is no terminal has no width to fill: lines end where their text ends."""
    asked = {"read_as": ["CPU request 200m, from cpu_shares 204"]}
    container = {"namespace": "default", "pod": "web", "container": "main", "id": "abc", "state": "refused"}
    values = {"container": container, "asked": asked, "events": [], "why": [], "earlier": []}
    file = StringIO()

    Console(file=file, width=UNLIMITED).print(render({**values, "notices": [], "waits_for": []}))

    assert "CPU request 200m" in file.getvalue()
    assert max(map(len, file.getvalue().splitlines())) < 80
