"""``criproxy simulate FILE``: runs the cases, and prints them with the reasons and candidates of each decision."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from criproxy.api.views.candidates import values
from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render.candidates import render_choices
from criproxy.cli.render.console import HEADING, print_lines, show, watched
from criproxy.config.load import load
from criproxy.errors import ConfigError, CriproxyError, UsageError
from criproxy.model.text.bounded import printable
from criproxy.placement.answers.choice import weighed
from criproxy.placement.engine import placing
from criproxy.simulate.scenario.runner import Instead, Result, as_json, line, reasons, run, runs, summary
from criproxy.simulate.scenario.vectors import Contents, examine
from criproxy.simulate.scenario.world import raised


def run_cases(file: Path, ids: Sequence[str], instead: Instead, output: str, *, verbose: bool, explain: bool) -> int:
    """Run and print cases; return the exit status."""
    contents = examine(file, ids)
    for mistake in contents.all_mistakes:
        print_lines(mistake.located(file), err=True)
    cases = watched(runs(contents.vectors, instead), "Running scenarios")
    results = [run(vector, rules, instead) for vector, rules in cases]
    (_print_json if output == "json" else _print)(results, contents, verbose=verbose, explain=explain)
    return 2 if contents.all_mistakes else int(any(result.failure for result in results))


def with_policy(instead: Instead, policy: Path) -> Instead:
    """Replace the policy of all cases by that of a file."""
    host = os.uname().nodename
    try:
        rules = (load(policy, host).options.rules,)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    return replace(instead, settings_of=lambda _, __, machine: load(policy, host, topology=machine), rules=rules)


def _print(results: Sequence[Result], contents: Contents, *, verbose: bool, explain: bool) -> None:
    width = max((len(result.vector.id) for result in results), default=0)
    for result in results:
        click.secho(printable(line(result, width)), fg="red" if result.failure else None)
        for reason in reasons(result) if verbose else ():
            print_lines(reason)
        if explain:
            _show_choices(result)
    unread = f", {len(contents.wrong)} not read: see above" if contents.wrong else ""
    click.echo(f"{summary(results)}{unread}")


def _print_json(results: Sequence[Result], contents: Contents, *, verbose: bool, explain: bool) -> None:
    failed = sum(1 for result in results if result.failure)
    cases = [
        as_json(result, verbose=verbose) | ({"choices": [*_choices(result)]} if explain else {}) for result in results
    ]
    mistakes = [{"line": each.line, "column": each.column, "text": each.sentence} for each in contents.all_mistakes]
    ok = not failed and not mistakes
    click.echo(json.dumps({"ok": ok, "failed": failed, "mistakes": mistakes, "cases": cases}))


def _choices(result: Result) -> Iterator[dict[str, Any]]:
    """Yield `line` and `container` for each new container, with the keys of `choices` in `criproxy explain`.

    Raises:
        CriproxyError: a policy fails; the text says where.
    """
    for asked in result.asked:
        try:
            placed = placing(asked.before, asked.event, asked.policy)
            found = weighed(placed, asked.event, asked.policy, refused=asked.refused)
        except Exception as error:  # the policy may be a user's
            text = f"{result.vector.id}, line {asked.line}: the policy cannot show its candidates: {raised(error)}"
            raise CriproxyError(text) from error
        if found:
            yield {"line": asked.line, "container": found[0].title, **values(found[1], "")}


def _show_choices(result: Result) -> None:
    """Print the candidates as tables, each below the line of the file and the name of the container."""
    for choice in _choices(result):
        title = rich.Text(f"line {choice['line']}: {choice['container']}", style=HEADING)
        show(rich.Group(rich.Text(), title, *render_choices([choice])))
    if result.asked:
        show(rich.Text())
