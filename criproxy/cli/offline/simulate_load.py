"""``criproxy simulate --load``: simulates hours on a node with each of several policies, and compares them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from criproxy.model.cpuset import CpuSet
    from criproxy.model.machine.topology import Topology
    from criproxy.simulate.load import Load
    from criproxy.simulate.load_run import Outcome, Run


@dataclass(frozen=True, slots=True)
class Question:
    """The comparison to make."""

    file: Path
    """A specification or a trace."""
    policies: Sequence[Path]
    """The policy files, at least one."""
    topology: "Topology | None" = None
    """The machine; None: that of the file."""
    cards: Sequence["CpuSet"] = ()
    """Its cards: see `simulate.load_cards`."""


def compare(question: Question, output: str) -> None:
    """Simulate a load with each policy file, and print the results.

    Args:
        question: the comparison.
        output: ``table`` or ``json``.

    Raises:
        UsageError: a file is invalid.
        PolicyAtFault: a policy failed to place a container.
    """
    from criproxy.cli.render.progress import watched
    from criproxy.errors import UsageError
    from criproxy.simulate.loads import read_load

    if not question.policies:
        raise UsageError("give the policies to compare: --policy FILE, once for each")
    load = read_load(question.file, question.topology, question.cards)
    outcomes = [run.play(watched(load.events, f"Policy {run.name}")) for run in _runs(load, question.policies)]
    if output == "json":
        import json

        from criproxy.cli.tables.load import as_json

        click.echo(json.dumps(as_json(load, outcomes)))
    else:
        _print(load, outcomes)


def _runs(load: "Load", policies: Sequence[Path]) -> "list[Run]":
    """Return one run for each policy."""
    from criproxy.config.load import load as load_policy
    from criproxy.errors import ConfigError, UsageError
    from criproxy.simulate.load_run import Run

    host = os.uname().nodename
    try:
        return [
            Run.by(load_policy(path, host, topology=load.topology), name, load)
            for name, path in zip(names(policies), policies, strict=True)
        ]
    except ConfigError as error:
        raise UsageError(str(error)) from error


def names(policies: Sequence[Path]) -> list[str]:
    """Return a name for each policy file: without its directory if that is unique."""
    stems = [path.stem for path in policies]
    return [stem if stems.count(stem) == 1 else str(path) for stem, path in zip(stems, policies, strict=True)]


def _print(load: "Load", outcomes: "list[Outcome]") -> None:
    from rich.table import Table
    from rich.text import Text

    from criproxy.cli.render.console import show
    from criproxy.cli.tables.load import MEASURES, best, heading, headline, informative, reasons

    click.echo(heading(load, outcomes))
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for outcome in outcomes:
        table.add_column(outcome.name, justify="right")
    for measure in informative(MEASURES, outcomes):
        winners = best(measure, outcomes)
        cells = [
            Text(measure.shown(measure.value(each)), style="bold green" if place in winners else "")
            for place, each in enumerate(outcomes)
        ]
        table.add_row(measure.title, *cells)
    show(table)
    if len(outcomes) > 1:
        click.echo("\n".join(["", f"{headline(outcomes)}.", *reasons(outcomes)]))
