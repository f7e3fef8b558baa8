"""``criproxy simulate FILE --explain``: the candidates of each decision of a case."""

from collections.abc import Iterator
from typing import Any

from criproxy.api.views.candidates import values
from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render.candidates import render_choices
from criproxy.cli.render.console import HEADING, show
from criproxy.errors import CriproxyError
from criproxy.placement.answers.choice import weighed
from criproxy.simulate.faults import raised
from criproxy.simulate.scenario.runner import Result


def choices(result: Result) -> Iterator[dict[str, Any]]:
    """Yield `line` and `container` for each new container, with the keys of `choices` in `criproxy explain`.

    Raises:
        CriproxyError: a policy fails; the text says where.
    """
    for asked in result.asked:
        try:
            found = weighed(asked.before, asked.event, asked.policy, refused=asked.refused)
        except Exception as error:  # the policy may be a user's
            text = f"{result.vector.id}, line {asked.line}: the policy cannot show its candidates: {raised(error)}"
            raise CriproxyError(text) from error
        if found:
            yield {"line": asked.line, "container": found[0].title, **values(found[1], "")}


def show_choices(result: Result) -> None:
    """Print the candidates as tables, each below the line of the file and the name of the container."""
    for choice in choices(result):
        title = rich.Text(f"line {choice['line']}: {choice['container']}", style=HEADING)
        show(rich.Group(rich.Text(), title, *render_choices([choice])))
    if result.asked:
        show(rich.Text())
