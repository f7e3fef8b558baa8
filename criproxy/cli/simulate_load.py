"""``criproxy simulate --load``: hours of a node by each of several policies, side by side."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from criproxy.model.cpuset import CpuSet
    from criproxy.model.topology import Topology
    from criproxy.simulate.load import Load
    from criproxy.simulate.load_run import Outcome, Run


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be compared, and on how many nodes."""

    file: Path
    """A specification or a trace."""
    policies: Sequence[Path]
    """At least one."""
    topology: "Topology | None" = None
    """The machine; None takes that of the file."""
    cards: Sequence["CpuSet"] = ()
    """Its cards: see `sim.load_cards`."""
    nodes: int = 1


def compare(question: Question, output: str, page: Path | None) -> None:
    """Play a load for each policy file, and tell how they did.

    Args:
        question: what to play.
        output: ``table`` or ``json``.
        page: where to write a page for a browser.

    Raises:
        UsageError: a file cannot be used.
        PolicyAtFault: a policy failed where it should have placed somebody.
    """
    from criproxy.errors import UsageError
    from criproxy.simulate.loads import read_load

    if not question.policies:
        raise UsageError("give the policies to compare: --policy FILE, once for each")
    load = read_load(question.file, question.topology, question.cards)
    runs = _runs(load, question.policies)
    load, outcomes = _on_fleet(question, load) if question.nodes > 1 else (load, _on_one(load, runs))
    if page:
        _write(page, load, outcomes)
    if output == "json":
        import json

        from criproxy.cli.render.load_measures import as_json

        click.echo(json.dumps(as_json(load, outcomes)))
    else:
        _print(load, outcomes)


def _runs(load: "Load", policies: Sequence[Path]) -> "list[Run]":
    """A node for each policy."""
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


def _on_one(load: "Load", runs: "list[Run]") -> "list[Outcome]":
    from criproxy.cli.render.progress import watched

    return [run.play(watched(load.events, f"Policy {run.name}")) for run in runs]


def _on_fleet(question: Question, load: "Load") -> "tuple[Load, list[Outcome]]":
    """All nodes; the first has the events of *load*."""
    from criproxy.cli.render.progress import watched
    from criproxy.errors import UsageError
    from criproxy.simulate.fleet import Fleet, played, together
    from criproxy.simulate.load import read_spec
    from criproxy.simulate.loads import is_trace

    if is_trace(question.file):
        raise UsageError(f"{question.file} is a trace, of one node: --nodes is for loads that are made")
    policies = dict(zip(names(question.policies), question.policies, strict=True))
    fleet = Fleet(load.name, read_spec(question.file), load.topology, policies, os.uname().nodename, question.cards)
    with played(fleet, question.nodes) as under_way:
        nodes = [node.result() for node in watched(under_way, "Playing nodes")]
    turned_away = sum(node.turned_away for node in nodes)
    return replace(load, nodes=question.nodes, turned_away=turned_away), together(nodes)


def names(policies: Sequence[Path]) -> list[str]:
    """What to call each: the name of its file where that is enough."""
    stems = [path.stem for path in policies]
    return [stem if stems.count(stem) == 1 else str(path) for stem, path in zip(stems, policies, strict=True)]


def _write(page: Path, load: "Load", outcomes: "list[Outcome]") -> None:
    from criproxy.cli.render.load_page import render
    from criproxy.errors import CriproxyError

    try:
        page.write_text(render(load, outcomes), encoding="utf-8")
    except OSError as error:
        raise CriproxyError(f"{page} cannot be written: {error.strerror}") from error


def _print(load: "Load", outcomes: "list[Outcome]") -> None:
    from rich.table import Table
    from rich.text import Text

    from criproxy.cli.render.console import show
    from criproxy.cli.render.load_measures import MEASURES, best, telling
    from criproxy.cli.render.load_verdict import heading, headline, reasons

    click.echo(heading(load, outcomes))
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for outcome in outcomes:
        table.add_column(outcome.name, justify="right")
    for measure in telling(MEASURES, outcomes):
        winners = best(measure, outcomes)
        cells = [
            Text(measure.shown(measure.value(each)), style="bold green" if place in winners else "")
            for place, each in enumerate(outcomes)
        ]
        table.add_row(measure.title, *cells)
    show(table)
    if len(outcomes) > 1:
        click.echo("\n".join(["", f"{headline(outcomes)}.", *reasons(outcomes)]))
